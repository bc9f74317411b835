//go:build !faults

package check

// Faults says that the tests are compiled for `make faults`.
const Faults = false
