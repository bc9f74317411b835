package command

import (
	"math"
	"runtime/metrics"
)

const (
	// ballastSize is how many bytes the process allocates between two collections of
	// garbage at the least. An order leaves some 10 KiB behind while a few MiB are alive:
	// with Go's default, which lets the heap double, garbage would be collected some ten
	// times a second in a rush, for a tenth of the processor. Unlike a larger GOGC this
	// adds the same memory to a large heap as to a small one.
	ballastSize = 64 << 20
	// defaultGOGC is Go's own, in percent.
	defaultGOGC = 100
)

// Ballast is memory that counts as alive and is never touched: the kernel gives it no
// page. The process keeps one, however many instances it runs. It is empty where the
// operator has told Go how to collect (GOGC, GOMEMLIMIT).
func Ballast() []byte {
	told := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(told)
	return make([]byte, ballastFor(told[0].Value.Uint64(), told[1].Value.Uint64()))
}

// ballastFor is the size of a ballast under a GOGC in percent and a GOMEMLIMIT in bytes.
func ballastFor(percent, limit uint64) int {
	if percent != defaultGOGC || limit != math.MaxInt64 {
		return 0
	}
	return ballastSize
}
