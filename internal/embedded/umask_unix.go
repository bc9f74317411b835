//go:build unix

package embedded

import "syscall"

// OwnFilesOnly makes every new file of this process its owner's alone: SQLite and the queue choose other modes.
func OwnFilesOnly() { syscall.Umask(0o077) }
