package password

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"seckill/internal/workshop/check"
)

// TestStepBack: the thread of a hash is behind all others of the process, and only that one is.
func TestStepBack(t *testing.T) {
	t.Parallel()
	nice := func() int {
		return 20 - check.Value(unix.Getpriority(unix.PRIO_PROCESS, 0))(t)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, behind := nice(), make(chan int)
	go func() {
		stepBack()
		behind <- nice()
	}()
	check.Equal(t, "a hash", <-behind, min(before+niceness, lowest))
	check.Equal(t, "another thread", nice(), before)
}
