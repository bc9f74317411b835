package service

import (
	"runtime"
	"testing"

	"seckill/internal/testserver"
)

// The race detector sometimes dies when many timers of a bubble of synctest fire on
// several processors at once, see https://go.dev/issue/78156. On one processor it
// sees races all the same, because it goes by what happens before what.
func TestMain(m *testing.M) {
	if raceDetector {
		runtime.GOMAXPROCS(1)
	}
	testserver.Main(m)
}
