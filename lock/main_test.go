package lock_test

import (
	"os"
	"testing"

	"seckill/internal/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "holder" {
		os.Exit(holder())
	}
	testserver.Main(m)
}
