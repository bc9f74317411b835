package servicetest

import (
	"runtime"
	"testing"

	"seckill/internal/workshop/testserver"
)

// Main is testserver.Main on one processor where races are looked for.
//
// The race detector sometimes dies when many timers of a bubble of synctest fire on
// several processors at once, see https://go.dev/issue/78156. On one processor it
// sees races all the same, because it goes by what happens before what.
func Main(m *testing.M) {
	if raceDetector {
		runtime.GOMAXPROCS(1)
	}
	testserver.Main(m)
}
