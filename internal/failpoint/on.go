//go:build failpoint

package failpoint

import (
	"os"
	"slices"
	"strings"
	"syscall"
)

// The variables of the environment that this build obeys.
const (
	stepVariable   = "SECKILL_FAILPOINT"
	defectVariable = "SECKILL_DEFECT"
)

// Reach kills the process when the step is the one that was asked for: as hard
// as a power cut, nothing is deferred, flushed or closed.
func Reach(step Step) {
	if os.Getenv(stepVariable) == string(step) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; nothing may happen meanwhile
	}
}

// Has reports whether the defect was asked for.
func Has(defect Defect) bool { return os.Getenv(defectVariable) == string(defect) }

// Without returns an environment without the variables of this package, which
// are no settings: the reader of settings would refuse them as typos.
func Without(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == stepVariable || name == defectVariable
	})
}
