//go:build failpoint

package failpoint

import (
	"os"
	"slices"
	"strings"
	"syscall"
)

const stepVariable = "SECKILL_FAILPOINT" // the variable of the environment that this build obeys

// Reach kills the process at the step that was asked for, as a power cut: nothing is deferred, flushed or closed.
func Reach(step Step) {
	if os.Getenv(stepVariable) == string(step) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; nothing may happen meanwhile
	}
}

// Without returns an environment without this package's variable, which the reader of settings would call a typo.
func Without(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == stepVariable
	})
}
