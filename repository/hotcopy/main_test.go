package hotcopy_test

import (
	"testing"

	"seckill/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }
