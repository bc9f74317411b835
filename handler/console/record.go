package console

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"seckill/internal/poll"
	"seckill/model"
)

const (
	// recordEvery is between two points of a chart that were kept, and recordedFor how long they are.
	recordEvery = 5 * time.Second
	recordedFor = time.Hour
	// recordTimeout bounds one look at all sales.
	recordTimeout = 4 * time.Second
	// maxRecorded bounds the sales of a phase that are kept.
	maxRecorded = 30
)

// recorder keeps what the charts of the sales that are on show, for an hour.
type recorder struct {
	mu    sync.Mutex
	sales map[string]*recorded // by voucher
}

// recorded is one sale.
type recorded struct {
	watcher  *watcher
	readings []reading // oldest first
	told     []byte    // the event that tells them; nil: it is not made yet
}

// Record reads each sale that is on, again and again, until ctx ends.
func (c *Console) Record(ctx context.Context) {
	poll.Every(ctx, recordEvery, func() {
		if err := c.record(ctx); err != nil && ctx.Err() == nil {
			c.Log.DebugContext(ctx, "the charts of the sales miss a point", slog.Any("error", err))
		}
	})
}

func (c *console) record(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	for _, phase := range []model.Phase{model.PhaseLive, model.PhaseSoldOut, model.PhasePaused} {
		page, err := c.Vouchers.List(ctx, model.VoucherQuery{Phase: phase, All: true, Limit: maxRecorded})
		if err != nil {
			return err
		}
		for _, voucher := range page.Items {
			if !voucher.Buyable() && voucher.State != model.VoucherPaused {
				continue
			}
			one, err := c.recorded(voucher.ID).watcher.read(ctx, voucher)
			if err != nil {
				return err
			}
			c.recorder.keep(voucher.ID, one)
		}
	}
	c.recorder.forget(time.Now().Add(-recordedFor))
	return nil
}

// recorded is what is kept of a sale.
func (c *console) recorded(id string) *recorded {
	c.recorder.mu.Lock()
	defer c.recorder.mu.Unlock()
	sale := c.recorder.sales[id]
	if sale == nil {
		sale = &recorded{watcher: &watcher{console: c, id: id, counted: &rarely[counts]{}}}
		c.recorder.sales[id] = sale
	}
	return sale
}

func (r *recorder) keep(id string, one reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one.Tag, one.State = "", "" // which charts do not show
	sale := r.sales[id]
	sale.readings, sale.told = append(sale.readings, one), nil
}

// forget drops readings that are too old, and sales of which none is left.
func (r *recorder) forget(before time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, sale := range r.sales {
		sale.readings = slices.DeleteFunc(sale.readings, func(one reading) bool { return one.Now.Before(before) })
		if len(sale.readings) == 0 {
			delete(r.sales, id)
		}
	}
}

// history is an event with what was kept of a sale. Those who begin to watch it at the same time share it.
func (c *console) history(id string) ([]byte, error) {
	sale := c.recorded(id)
	c.recorder.mu.Lock()
	defer c.recorder.mu.Unlock()
	if sale.told == nil {
		message, err := json.Marshal(map[string][]reading{"readings": append([]reading{}, sale.readings...)})
		if err != nil {
			return nil, err
		}
		sale.told = event("history", message)
	}
	return sale.told, nil
}
