package password

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// niceness is by how many steps a hash steps back behind the rest of the process (sched(7): a step is a factor of 1.25
// in weight, so that ten are one of 9). Lower would starve it, and with it the garbage collector, which stops every
// thread of the process and waits for this one too.
const niceness = 10

// lowest is the lowest priority that Linux knows (setpriority(2)).
const lowest = 19

// stepBack lowers the priority of the calling goroutine, which must have nothing else to do afterwards: its thread ends
// with it, because a process without privileges cannot give the priority back. It is a courtesy; where it is refused,
// the hash runs as everything else does.
func stepBack() {
	runtime.LockOSThread() // and never unlocked
	// Of a thread, in spite of the constant's name; the kernel returns 20 - nice.
	kernel, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, min(20-kernel+niceness, lowest))
}
