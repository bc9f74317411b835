package password

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStepBack: the thread of a hash is behind all others of the process, and only that one is.
func TestStepBack(t *testing.T) {
	t.Parallel()
	nice := func() int {
		kernel, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Error(err)
		}
		return 20 - kernel
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, behind := nice(), make(chan int)
	go func() {
		stepBack()
		behind <- nice()
	}()
	if got, want := <-behind, min(before+niceness, lowest); got != want {
		t.Errorf("a hash runs at %d, want %d", got, want)
	}
	if after := nice(); after != before {
		t.Errorf("another thread runs at %d, and ran at %d", after, before)
	}
}
