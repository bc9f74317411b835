//go:build unix

package conns

import "syscall"

// Descriptors is how many files this process may have open. Go raises the soft limit to the hard one (package os).
func Descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return manyDescriptors
	}
	return int(min(uint64(limit.Cur), manyDescriptors)) //nolint:unconvert // the type differs between systems
}
