package service

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"seckill/model"
)

const (
	// confirmTimeout bounds the look at the epoch behind an acknowledged message.
	confirmTimeout = time.Second
	// recordTimeout bounds the database's part of it. It answers in a
	// millisecond; one that does not must not hold up what needs no database.
	recordTimeout = 250 * time.Millisecond
	// recordPause is for how long a database that did not answer is not asked.
	recordPause = time.Second
)

// CopyRecords tells what the database says about hot copies.
type CopyRecords interface {
	// Read leaves out vouchers that do not exist.
	Read(ctx context.Context, ids []string) (map[string]model.EpochRecord, error)
}

// confirm looks at the epochs once more behind an acknowledged message, and
// tells of each reservation why it must not be promised; nil when it may.
//
// A rebuild first begins another epoch in the database, then closes the hot
// copy, and only then asks how long the queue is: whoever still finds either of
// them as it was stands before that, and counts. The hot copy alone would do,
// were there only one: instances that look at two different Redis servers, by
// mistake or after a fail-over, find each their own copy open. The database
// knows better. When it is away the hot copy must do, because this road works
// without a database.
func (a *Admission) confirm(ctx context.Context, reservations []model.Reservation) []error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	var records map[string]model.EpochRecord
	var reading sync.WaitGroup
	reading.Go(func() { records = a.records.read(ctx, reservations) })
	open, err := a.hot.Confirm(ctx, reservations)
	reading.Wait()
	verdicts := make([]error, len(reservations))
	for i, r := range reservations {
		record, known := records[r.VoucherID]
		if i < len(open) && open[i] && (!known || record.Epoch == r.Epoch) {
			continue
		}
		a.metrics.Unconfirmed(1)
		verdicts[i] = fmt.Errorf("order %s was published, and its epoch %d is not known to be open: %w",
			r.ID, r.Epoch, cmp.Or(err, model.ErrCopyClosed))
	}
	return verdicts
}

// recordReader reads the database's records of hot copies while it answers.
type recordReader struct {
	records CopyRecords
	silent  atomic.Int64 // nanoseconds since 1970 until which it is not asked
	log     *slog.Logger
}

// read returns what is known; nothing while the database is away.
func (r *recordReader) read(ctx context.Context, reservations []model.Reservation) map[string]model.EpochRecord {
	was := r.silent.Load()
	if time.Now().UnixNano() < was {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	records, err := r.records.Read(ctx, vouchersOf(reservations))
	if err != nil {
		r.silent.Store(time.Now().Add(recordPause).UnixNano())
		if was == 0 {
			r.log.WarnContext(ctx, "the database does not tell the epochs; the hot copies alone confirm orders", slog.Any("error", err))
		}
		return nil
	}
	if was != 0 && r.silent.CompareAndSwap(was, 0) {
		r.log.InfoContext(ctx, "the database tells the epochs again")
	}
	return records
}
