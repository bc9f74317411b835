package persist

import (
	"testing"

	"seckill/service/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m) }
