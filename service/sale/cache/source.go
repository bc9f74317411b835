package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/bits-and-blooms/bloom/v3"

	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// hotReadTimeout bounds one reading of hot copies: a request must have time for the database too.
	hotReadTimeout = budget.Look + budget.Brief
	statsTries     = 3 // how often counts that do not add up are taken: an order may be canceled between the looks
)

// Database is where vouchers are, and in the order mode sync their orders.
type Database interface {
	// GetMany returns the vouchers that exist, with the database's clock as their ServerTime.
	GetMany(ctx context.Context, ids []string) (map[string]model.Voucher, error)
	// ShowMany is GetMany for those who look and do not buy: it takes no connection from those who do.
	ShowMany(ctx context.Context, ids []string) (map[string]model.Voucher, error)
	// Buyers calls yield with every user who has a live order of a voucher, or waits before another one.
	Buyers(ctx context.Context, v model.Voucher, yield func(userID string) error) error
}

// HotCopies sell in the order mode async.
type HotCopies interface {
	// Node names the server of a voucher's copy: a silent one must not hold up others' readings. It asks none.
	Node(voucherID string) string
	// Read answers each of the ids; a hot copy that is not loaded is closed. With an error it answers those it can.
	Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error)
	// Buyers calls yield at least once with every user who has a reserved or live order, or waits for another.
	Buyers(ctx context.Context, v model.Voucher, yield func(userID string) error) error
}

type reading struct {
	voucher *model.Voucher // nil: there is none
	closed  bool           // its hot copy is closed
	err     error          // it could not be read, though others could
}

// source reads vouchers where an order mode sells them: the database in sync, hot copies in async, also in an outage.
type source struct {
	db      Database
	hot     HotCopies // nil in the order mode sync
	trouble telemetry.Trouble
	log     *slog.Logger
}

// entries answers each of the ids, in order: from open hot copies, and else from the database.
func (r *source) entries(ctx context.Context, ids []string) ([]reading, error) {
	if r.hot == nil {
		return readings(ctx, r.db.GetMany, ids)
	}
	hot, hotErr := r.look(ctx, ids)
	read := make([]reading, len(ids))
	var rest []string
	for i, id := range ids {
		if open, ok := hot[id]; ok && open.State == model.CopyOpen {
			read[i].voucher = &open.Voucher
		} else {
			rest = append(rest, id)
		}
	}
	if len(rest) == 0 {
		return read, nil
	}
	found, err := r.db.GetMany(ctx, rest)
	for i, id := range ids {
		if read[i].voucher != nil {
			continue
		}
		v, exists := found[id]
		_, known := hot[id]
		switch {
		case err != nil:
			read[i].err = err
		case !exists:
		case !known && v.OnSale(v.ServerTime) && v.Allocation != model.ByDraw:
			// The hot copy may be open: an older entry stays in use.
			read[i].err = model.Unavailable("The sale cannot be looked at.", hotErr)
		default:
			read[i] = reading{voucher: &v, closed: true}
		}
	}
	return read, nil
}

func readings(
	ctx context.Context, many func(context.Context, []string) (map[string]model.Voucher, error), ids []string,
) ([]reading, error) {
	found, err := many(ctx, ids)
	if err != nil {
		return nil, err
	}
	read := make([]reading, len(ids))
	for i, id := range ids {
		if v, ok := found[id]; ok {
			read[i].voucher = &v
		}
	}
	return read, nil
}

// shown reads vouchers from the database, because hot copies have no titles, with what is left by the copies.
func (r *source) shown(ctx context.Context, ids []string) ([]reading, error) {
	read, err := readings(ctx, r.db.ShowMany, ids)
	if err != nil || r.hot == nil {
		return read, err
	}
	hot, _ := r.look(ctx, ids) // without them the database's numbers must do
	for i, id := range ids {
		if read[i].voucher != nil {
			shown := shownAs(*read[i].voucher, hot[id])
			read[i].voucher = &shown
		}
	}
	return read, nil
}

// buyers yields each user of a sold-out voucher, or waiting, at least once. After errOvertaken marks may be missing.
func (r *source) buyers(ctx context.Context, v model.Voucher, yield func(userID string) error) error {
	if r.hot == nil {
		return r.db.Buyers(ctx, v, yield)
	}
	err := r.hot.Buyers(ctx, v, yield)
	if errors.Is(err, model.ErrCopyClosed) {
		return errOvertaken
	}
	if err != nil {
		return err
	}
	hot, err := r.look(ctx, []string{v.ID})
	if err != nil {
		return err
	}
	if now := hot[v.ID]; now.State != model.CopyOpen || now.Voucher.Version != v.Version {
		return errOvertaken
	}
	return nil
}

// look reads hot copies. With an error it returns those that could be read.
func (r *source) look(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	reading, cancel := context.WithTimeout(ctx, hotReadTimeout)
	defer cancel()
	hot, err := r.hot.Read(reading, ids)
	if err != nil {
		err = fmt.Errorf("read %d hot copies: %w", len(ids), err)
	}
	if err == nil || ctx.Err() == nil {
		r.trouble.Note(ctx, r.log, err, "the hot copies cannot be read", "the hot copies can be read again")
	}
	return hot, err
}

// shownAs is a voucher with an open copy's numbers and clock: stock = remaining + reserved + live, of one place.
func shownAs(v model.Voucher, hot model.HotCopy) model.Voucher {
	if hot.State != model.CopyOpen {
		return v
	}
	v.Stock, v.Remaining, v.Reserved = hot.Voucher.Stock, hot.Voucher.Remaining, hot.Reserved
	return v.At(hot.Voucher.ServerTime)
}

// sold shows what is left in the database's vouchers. Those that turn out of another phase are left out.
func (r *source) sold(ctx context.Context, vouchers []model.Voucher, phase model.Phase) []model.Voucher {
	if r.hot == nil || len(vouchers) == 0 {
		return vouchers
	}
	ids := make([]string, len(vouchers))
	for i, v := range vouchers {
		ids[i] = v.ID
	}
	hot, _ := r.look(ctx, ids) // without them the database's numbers must do
	for i, v := range vouchers {
		vouchers[i] = shownAs(v, hot[v.ID])
	}
	return slices.DeleteFunc(vouchers, func(v model.Voucher) bool { return phase != "" && v.Phase != phase })
}

// Stats counts a voucher's units and orders; count counts the database's. Reserved units neither remain nor are sold.
// Rows are counted first, so that an order persisted meanwhile counts as reserved, and not twice.
func (r *source) Stats(
	ctx context.Context, id string, count func(context.Context, string) (model.Stats, error),
) (model.Stats, error) {
	if r.hot == nil {
		return count(ctx, id)
	}
	var stats model.Stats
	for range statsTries {
		var err error
		if stats, err = count(ctx, id); err != nil {
			return stats, err
		}
		hot, _ := r.look(ctx, []string{id})
		if hot[id].State != model.CopyOpen {
			return stats, nil // the database's numbers must do
		}
		v := hot[id].Voucher
		stats.Stock, stats.Remaining = v.Stock, v.Remaining
		if stats.Reserved = v.Stock - v.Remaining - stats.Sold; stats.Reserved >= 0 {
			break
		}
	}
	stats.Reserved = max(stats.Reserved, 0)
	stats.OrdersByStatus[model.OrderProcessing] = stats.Reserved
	return stats, nil
}

const (
	// maxRemembered bounds the buyers of a sold-out voucher in memory (1.8 MB a million). Beyond it, no request is
	// refused from the cache as SOLD_OUT: all take the whole road, slower but as right.
	maxRemembered = 4_000_000
	// falseBuyers is how often a user without an order passes for a buyer: the whole road gives the right answer.
	falseBuyers = 0.001
)

var (
	errClosing = errors.New("the voucher cache is closing") // ends a reading of buyers when the cache closes
	// errOvertaken voids a reading of buyers during which the voucher changed.
	errOvertaken = errors.New("the voucher changed meanwhile")
)

// buyers is the set of users with a live order of a sold-out voucher, or who wait before another: SOLD_OUT is wrong for
// them. It may wrongly have a user, but never lacks a buyer.
type buyers struct {
	version int64 // of the sold-out voucher, which was read before the buyers
	filter  *bloom.BloomFilter
}

// buyersOf returns the buyers of a sold-out voucher; nil: not known yet. They are read after the voucher, when all
// orders were committed, and stay the same while its version does, because no unit moves.
func (c *Vouchers) buyersOf(s *slot, v model.Voucher) *buyers {
	if known := s.buyers.Load(); known != nil && known.version == v.Version {
		return known
	}
	if v.Stock > maxRemembered || !s.reading.CompareAndSwap(false, true) {
		return nil
	}
	done := make(chan *buyers, 1)
	c.jobs.Go(func() {
		defer s.reading.Store(false)
		done <- c.readBuyers(s, v)
		select {
		case <-time.After(budget.Look):
		case <-c.closing:
		}
	})
	select {
	case read := <-done:
		return read
	case <-time.After(budget.Blink):
		return nil
	}
}

// readBuyers reads the buyers into the slot, and into the slot's entry if that is still of the same version.
func (c *Vouchers) readBuyers(s *slot, v model.Voucher) *buyers {
	ctx, cancel := context.WithTimeout(context.Background(), budget.Survey)
	defer cancel()
	read := &buyers{version: v.Version, filter: bloom.NewWithEstimates(uint(max(v.Stock, 1)), falseBuyers)}
	err := c.buyers(ctx, v, func(userID string) error {
		read.filter.AddString(userID)
		select {
		case <-c.closing:
			return errClosing
		default:
			return nil
		}
	})
	if err != nil {
		if !errors.Is(err, errClosing) && !errors.Is(err, errOvertaken) {
			c.log.Warn("the buyers of a sold-out voucher could not be read; its requests take the whole road",
				slog.String("voucher_id", v.ID), slog.Any("error", err))
		}
		return nil
	}
	s.buyers.Store(read)
	if held := s.entry.Load(); held != nil && held.buyers == nil && held.soldOut() &&
		held.voucher.Version == v.Version {
		completed := *held
		completed.buyers = read
		s.entry.CompareAndSwap(held, &completed) // a newer entry has them already
	}
	return read
}
