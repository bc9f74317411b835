package sale

import (
	"context"
	"sync"
)

// gate bounds how many requests are inside at once, in all and of one voucher; the
// others wait, first come first served.
//
// In a rush every request passes the first look at the cache before anything is
// sold. Without a gate all of them would take a lock and ask the database. With a
// gate, the waiting requests are answered from the cache once nothing is left.
type gate struct {
	places places
	one    int // of them are for one voucher

	mu       sync.Mutex
	vouchers map[string]*entrance // of the vouchers that have requests inside or waiting
}

// entrance is the part of the gate for one voucher.
type entrance struct {
	places   places
	requests int // inside or waiting
}

func newGate(all, one int) *gate {
	return &gate{places: make(places, all), one: one, vouchers: map[string]*entrance{}}
}

// enter waits until there is room, and tells whether that took any time; leave makes
// room. An error says that ctx ended before, and that there is nothing to leave.
func (g *gate) enter(ctx context.Context, voucherID string) (waited bool, err error) {
	own := g.entrance(voucherID)
	waited, err = own.places.take(ctx)
	if err == nil {
		var again bool
		if again, err = g.places.take(ctx); err != nil {
			<-own.places
		}
		waited = waited || again
	}
	if err != nil {
		g.depart(voucherID, own)
	}
	return waited, err
}

func (g *gate) leave(voucherID string) {
	g.mu.Lock()
	own := g.vouchers[voucherID]
	g.mu.Unlock()
	<-g.places
	<-own.places
	g.depart(voucherID, own)
}

func (g *gate) entrance(voucherID string) *entrance {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.vouchers[voucherID]
	if own == nil {
		own = &entrance{places: make(places, g.one)}
		g.vouchers[voucherID] = own
	}
	own.requests++
	return own
}

func (g *gate) depart(voucherID string, own *entrance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own.requests--; own.requests == 0 {
		delete(g.vouchers, voucherID)
	}
}

// places has room for as many requests as it has capacity.
type places chan struct{}

func (p places) take(ctx context.Context) (waited bool, err error) {
	select {
	case p <- struct{}{}:
		return false, nil
	default:
	}
	select {
	case p <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}
