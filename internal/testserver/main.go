package testserver

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, stops the servers they shared, and fails the run when a goroutine is
// left over. It does not return. Every package that uses this one calls it:
//
//	func TestMain(m *testing.M) { testserver.Main(m) }
//
// The options name goroutines of libraries that are known to stay.
func Main(m *testing.M, opts ...goleak.Option) {
	process.adopt()
	code := m.Run()
	if err := process.close(); err != nil {
		fmt.Fprintf(os.Stderr, "testserver: stop shared servers: %v\n", err)
		code = max(code, 1)
	}
	if code == 0 {
		// Looked at only when the tests passed: a failed one leaves goroutines that say nothing new.
		if err := goleak.Find(opts...); err != nil {
			fmt.Fprintf(os.Stderr, "testserver: goroutines are left over: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}
