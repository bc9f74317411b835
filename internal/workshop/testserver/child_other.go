//go:build unix && !linux

package testserver

import "syscall"

// attributes: only Linux ends a child with its parent. Elsewhere the servers of a test binary that was
// killed stay, and have to be ended by hand.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
