package bench

import (
	"syscall"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

// ownCPU is the same of this process, which sends the open load.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	check.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
