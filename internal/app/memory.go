package app

import (
	"math"
	"os"
	"runtime/debug"
)

// ballastSize is how many bytes an instance allocates between two collections of garbage
// at the least. An order leaves some 10 KiB behind while a few MiB are alive: with Go's
// default, which lets the heap double, garbage would be collected some hundred times a
// second in a rush, for a tenth of the processor. Unlike a larger GOGC this adds the same
// memory to a large heap as to a small one.
const ballastSize = 64 << 20

// ballast is memory that counts as alive and is never touched: the kernel gives it no
// page. There is none where the operator has told Go how to collect (GOGC, GOMEMLIMIT).
func ballast() []byte {
	if os.Getenv("GOGC") != "" || debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return nil
	}
	return make([]byte, ballastSize)
}
