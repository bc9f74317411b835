package command

import (
	"math"
	"runtime"
	"testing"
)

// BenchmarkBallast measures what an allocation costs with and without a ballast, while as
// much is alive as in an instance without a sale.
func BenchmarkBallast(b *testing.B) {
	for name, size := range map[string]int{"with": ballastSize, "without": 0} {
		b.Run(name, func(b *testing.B) {
			weight := make([]byte, size)
			alive := make([]*[1024]*byte, 1000) // 8 MiB of pointers
			for i := range alive {
				alive[i] = new([1024]*byte)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var kept *[128]*byte
			for b.Loop() {
				kept = new([128]*byte) // 1 KiB
			}
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.NumGC-before.NumGC)*1e6/float64(b.N), "collections/GB")
			runtime.KeepAlive(weight)
			runtime.KeepAlive(alive)
			runtime.KeepAlive(kept)
		})
	}
}

func TestOperatorsSettingsWin(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		percent, limit uint64
		want           int
	}{
		{100, math.MaxInt64, ballastSize},
		{50, math.MaxInt64, 0},
		{400, math.MaxInt64, 0},
		{math.MaxUint64, math.MaxInt64, 0}, // off
		{100, 256 << 20, 0},
	} {
		if got := ballastFor(test.percent, test.limit); got != test.want {
			t.Errorf("a ballast of %d bytes with %d %% and %d bytes, want %d", got, test.percent, test.limit, test.want)
		}
	}
	if got := len(Ballast()); got != ballastSize { // nobody has told Go anything here
		t.Errorf("a ballast of %d bytes", got)
	}
}
