package ratelimit

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
)

// TestBrake: an address that has heard a thousand refusals hears the next a second later, and another address does not.
func TestBrake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		brake := check.Value(NewBrake())(t)
		flood, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		held := brake.Hold
		for n := range 1000 {
			if d := held(t.Context(), flood); d > 0 {
				t.Fatalf("refusal %d was held back for %v", n, d)
			}
		}
		const connections, length = 500, 10 * time.Second
		var heard atomic.Int64
		ctx, stop := context.WithTimeout(t.Context(), length)
		defer stop()
		var all sync.WaitGroup
		for range connections {
			all.Go(func() {
				for ctx.Err() == nil {
					brake.Hold(ctx, flood)
					heard.Add(1)
					<-time.After(time.Millisecond) // until its next refusal
				}
			})
		}
		<-time.After(length / 2)
		if d := held(t.Context(), other); d > 0 {
			t.Errorf("another address was held back for %v", d)
		}
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, leave)
		if d := held(gone, flood); d > time.Millisecond {
			t.Errorf("a client that had left was held back for %v", d)
		}
		all.Wait()
		// 500 a second that are held back, and 100 that are not.
		if n := heard.Load(); n > 6500 || n < 5000 {
			t.Errorf("%d refusals within %v on %d connections", n, length, connections)
		}
	})
}

// TestBrakeIsBounded: a flood from everywhere is refused at once instead of kept.
func TestBrakeIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		brake := check.Value(NewBrake())(t)
		address := netip.MustParseAddr("192.0.2.1")
		for range 1000 {
			brake.Hold(t.Context(), address)
		}
		var late atomic.Int64
		var all sync.WaitGroup
		for range 5000 {
			all.Go(func() {
				if brake.Hold(t.Context(), address) == budget.Look {
					late.Add(1)
				}
			})
		}
		all.Wait()
		check.Equal(t, "refusals held back at once", late.Load(), 2000)
	})
}
