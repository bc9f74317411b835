package lock_test

import (
	"flag"
	"os"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "holder" {
		os.Exit(holder())
	}
	if !check.Faults { // what the command line says comes later, and wins
		_ = flag.Set("rapid.checks", "4")
		_ = flag.Set("rapid.steps", "20")
	}
	testserver.Main(m)
}
