package app

import (
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
	for gogc, want := range map[string]int{"": ballastSize, "100": 0, "off": 0} {
		t.Setenv("GOGC", gogc)
		if got := len(ballast()); got != want {
			t.Errorf("a ballast of %d bytes with GOGC=%q, want %d", got, gogc, want)
		}
	}
}
