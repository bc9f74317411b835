//go:build !failpoint

package failpoint

// Reach does nothing.
func Reach(Step) {}

// Has reports no defect.
func Has(Defect) bool { return false }
