package backlog

import (
	"testing"

	"seckill/service/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m) }
