package password

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// niceness is the steps by which a hash steps back (sched(7): each a factor of 1.25 in weight, ten about 9). More would
// starve it, and the garbage collector, which stops every thread and waits for this one too.
const niceness = 10

const lowest = 19 // priority that Linux knows (setpriority(2))

// stepBack lowers the priority of the calling goroutine, which must do nothing afterwards: its thread ends with it, as
// no unprivileged process can raise it again. Where it is refused, the hash runs as everything else.
func stepBack() {
	runtime.LockOSThread() // and never unlocked
	// Of a thread, in spite of the constant's name; the kernel returns 20 - nice.
	kernel, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, min(20-kernel+niceness, lowest))
}
