package queue_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/queue"
)

// BenchmarkDrain hands out 200,000 orders that wait in messages of 100, to a
// persist that does nothing: the queue's own share of a drain.
func BenchmarkDrain(b *testing.B) {
	const orders, each = 200_000, 100
	for range b.N {
		b.StopTimer()
		f := newFixture(b, nil)
		for i := range orders / each {
			check.Must(b, f.Publish(b.Context(), some(fmt.Sprintf("m%d", i), each)))
		}
		var handed, peak atomic.Int64
		runtime.GC()
		b.StartTimer()
		begun := time.Now()
		done := make(chan struct{})
		stop := consume(b, f.Queue, func(_ context.Context, all []model.Reservation) []error {
			if handed.Add(int64(len(all))) == orders {
				close(done)
			}
			return make([]error, len(all))
		}, queue.ConsumeOptions{Observe: func(queue.Delivery) {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), int64(m.HeapInuse)))
		}})
		<-done
		b.ReportMetric(orders/time.Since(begun).Seconds(), "orders/s")
		b.ReportMetric(float64(peak.Load())/(1<<20), "MiB-heap")
		b.StopTimer()
		stop()
		drained(b, f.Queue)
	}
}

// BenchmarkPublish stores messages of different sizes, one after another.
func BenchmarkPublish(b *testing.B) {
	for _, each := range []int{1, 100, 500} {
		b.Run(fmt.Sprint(each), func(b *testing.B) {
			f := newFixture(b, nil)
			all := some("a", each)
			for b.Loop() {
				check.Must(b, f.Publish(b.Context(), all))
			}
			b.ReportMetric(float64(b.N*each)/b.Elapsed().Seconds(), "orders/s")
		})
	}
}

// BenchmarkBacklog asks what waits.
func BenchmarkBacklog(b *testing.B) {
	f := newFixture(b, nil)
	check.Must(b, f.Publish(b.Context(), some("a", 1)))
	for b.Loop() {
		check.Must(b, check.ErrorOf(f.Backlog(b.Context())))
	}
}

// BenchmarkWaiting asks which vouchers have messages of their own, while each of many has some, and
// what one of them has.
func BenchmarkWaiting(b *testing.B) {
	for _, vouchers := range []int{100, 10_000} {
		b.Run(fmt.Sprint(vouchers), func(b *testing.B) {
			f := newFixture(b, nil)
			for i := range vouchers {
				f.stored(b, fmt.Sprintf(".voucher-%06d", i))
			}
			b.Run("all", func(b *testing.B) {
				for b.Loop() {
					check.Equal(b, "vouchers that wait", len(check.Value(f.Waiting(b.Context()))(b)), vouchers)
				}
			})
			b.Run("one", func(b *testing.B) {
				for b.Loop() {
					check.Must(b, check.ErrorOf(f.BacklogOf(b.Context(), "voucher-000007")))
				}
			})
		})
	}
}

// BenchmarkLatency is the time from a publish to the call of persist, when nothing else waits.
func BenchmarkLatency(b *testing.B) {
	f := newFixture(b, nil)
	arrived := make(chan struct{})
	consume(b, f.Queue, func(_ context.Context, all []model.Reservation) []error {
		arrived <- struct{}{}
		return make([]error, len(all))
	}, queue.ConsumeOptions{})
	all := some("a", 1)
	for b.Loop() {
		go func() { _ = f.Publish(b.Context(), all) }()
		<-arrived
	}
}
