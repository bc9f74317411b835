//go:build unix

package embedded

import "syscall"

// OwnFilesOnly makes every file that this process creates from now on its owner's alone. SQLite and the queue give
// theirs modes of their own choice, and make new ones all the time.
func OwnFilesOnly() { syscall.Umask(0o077) }
