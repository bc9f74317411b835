package service

import (
	"testing"

	"seckill/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }
