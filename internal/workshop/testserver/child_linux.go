package testserver

import "syscall"

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // Ctrl-C reaches the test first, which then stops its servers in order
	}
}
