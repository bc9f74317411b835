package testserver

import (
	"os/exec"
	"runtime"
)

// StartTied starts a program that ends, on Linux, with the process that started it, and waits for the program in the
// caller's stead: when ended is closed, cmd.ProcessState says how it ended.
func StartTied(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	cmd.SysProcAttr = attributes()
	over := make(chan struct{})
	err = OnKeptThread(cmd.Start, func() {
		_ = cmd.Wait() // how it ended is in its ProcessState
		close(over)
	})
	return over, err
}

// OnKeptThread starts a child, returns how that went, and keeps the thread that started it until wait returns.
//
// The kernel kills a child that has a Pdeathsig when the thread ends that started it, not the process (prctl(2)).
// Threads do end: each that has hashed a password.
func OnKeptThread(start func() error, wait func()) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := start()
		started <- err
		if err == nil {
			wait()
		}
	}()
	return <-started
}
