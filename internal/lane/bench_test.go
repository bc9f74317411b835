package lane_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/lane"
)

// BenchmarkGroup measures how many items share a run of a millisecond that 128 callers ask
// for again and again, and what one caller alone waits.
func BenchmarkGroup(b *testing.B) {
	for _, callers := range []int{1, 128} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			var runs, items atomic.Int64
			group := lane.New(func(_ context.Context, batch []int) ([]int, error) {
				runs.Add(1)
				items.Add(int64(len(batch)))
				<-time.After(time.Millisecond)
				return batch, nil
			}, options())
			defer group.Close(context.Background())
			b.ReportAllocs()
			b.SetParallelism(callers)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := group.Do(b.Context(), 1); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(items.Load())/float64(runs.Load()), "items/run")
		})
	}
}
