package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"seckill/model"
)

// hotReadTimeout bounds one reading of hot copies. They answer in less than a
// millisecond; where they hang, the database must still be asked within the
// time of a request.
const hotReadTimeout = 1500 * time.Millisecond

// HotReader reads hot copies.
type HotReader interface {
	// Read answers each of the ids; one that is not loaded is closed. With an
	// error it answers those it can.
	Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error)
	// Buyers calls yield with every user who has a reserved or a live order, at
	// least once.
	Buyers(ctx context.Context, voucherID string, yield func(userID string) error) error
}

// hotSource is the hot copies, which sell in order mode async. They go on when
// the database is away.
type hotSource struct {
	vouchers VoucherReader
	hot      HotReader
	silent   atomic.Bool // it was said that the hot copies cannot be read
	log      *slog.Logger
}

// copies reads vouchers from their hot copies where those are open. Whether
// another one can be bought at all the database knows: it may have ended, or
// never have existed.
func (s *hotSource) copies(ctx context.Context, ids []string) ([]reading, error) {
	hot, hotErr := s.read(ctx, ids)
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
	found, err := s.vouchers.GetMany(ctx, rest)
	for i, id := range ids {
		if read[i].voucher != nil {
			continue
		}
		v, exists := found[id]
		switch {
		case err != nil:
			read[i].err = err
		case !exists:
		case !known(hot, id) && v.Refusal(v.ServerTime) == nil:
			// Not known to be closed: whoever holds an older copy may go on with it.
			read[i].err = model.Unavailable("The sale cannot be looked at.", hotErr)
		default:
			read[i] = reading{voucher: &v, closed: true}
		}
	}
	return read, nil
}

// views reads vouchers from the database, because hot copies know no titles,
// and shows of them what is left in the hot copies.
func (s *hotSource) views(ctx context.Context, ids []string) ([]reading, error) {
	read, err := tableSource{vouchers: s.vouchers}.copies(ctx, ids)
	if err != nil {
		return nil, err
	}
	hot, _ := s.read(ctx, ids) // without them the database's numbers must do
	for i, id := range ids {
		if read[i].voucher != nil {
			shown := shownAs(*read[i].voucher, hot[id])
			read[i].voucher = &shown
		}
	}
	return read, nil
}

// buyers reads who has a mark in the hot copy. The copy is looked at once more
// behind that: one that was closed or rebuilt meanwhile may have shown none.
func (s *hotSource) buyers(ctx context.Context, v model.Voucher, yield func(userID string) error) error {
	err := s.hot.Buyers(ctx, v.ID, yield)
	if errors.Is(err, model.ErrCopyClosed) {
		return errOvertaken
	}
	if err != nil {
		return err
	}
	hot, err := s.read(ctx, []string{v.ID})
	if err != nil {
		return err
	}
	if now := hot[v.ID]; now.State != model.CopyOpen || now.Voucher.Version != v.Version {
		return errOvertaken
	}
	return nil
}

func known(hot map[string]model.HotCopy, id string) bool {
	_, ok := hot[id]
	return ok
}

// read reads hot copies, and tells the log when that begins and ends to fail.
func (s *hotSource) read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	reading, cancel := context.WithTimeout(ctx, hotReadTimeout)
	defer cancel()
	hot, err := s.hot.Read(reading, ids)
	if err != nil {
		err = fmt.Errorf("read %d hot copies: %w", len(ids), err)
		if ctx.Err() == nil && s.silent.CompareAndSwap(false, true) {
			s.log.WarnContext(ctx, "the hot copies cannot be read", slog.Any("error", err))
		}
		return hot, err
	}
	if s.silent.CompareAndSwap(true, false) {
		s.log.InfoContext(ctx, "the hot copies can be read again")
	}
	return hot, nil
}
