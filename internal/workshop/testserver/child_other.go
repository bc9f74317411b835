//go:build unix && !linux

package testserver

import "syscall"

// attributes: only Linux ends a child with its parent; elsewhere the servers of a killed test are ended by hand.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
