package service

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/model"
)

// serveRebuilds serves what was asked for, until nothing moves any more.
func (s *stage) serveRebuilds(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	var serving sync.WaitGroup
	serving.Go(func() { s.rebuild.Run(ctx) })
	synctest.Wait()
	cancel()
	serving.Wait()
}

func (s *stage) auditor() *Auditor {
	return NewAuditor(AuditorDeps{
		Store: dbSide{s}, Vouchers: dbSide{s}, Orders: dbSide{s}, Copies: hotSide{s}, Queue: queueSide{s},
		Settler: s.settler, Rebuilds: s.rebuild, Log: slog.New(slog.DiscardHandler),
	})
}

func (s *stage) reconciler(locks Locker) *Reconciler {
	return NewReconciler(ReconcilerDeps{
		Locks: locks, Deployment: "d", Mode: s.watcher(), Releases: dbSide{s}, Records: dbSide{s}, Vouchers: dbSide{s},
		Rows: dbSide{s}, Copies: hotSide{s}, Intents: intentSide{s}, Queue: queueSide{s}, Settler: s.settler,
		Rebuilds: s.rebuild, Auditor: s.auditor(), Metrics: s.worker, Log: slog.New(slog.DiscardHandler),
	})
}

func (s *stage) watcher() *ModeWatcher {
	w := NewModeWatcher(modeSide{s}, model.ModeAsync, slog.New(slog.DiscardHandler))
	_ = w.Refresh(context.Background())
	return w
}

// reconcileFor runs the reconciler, the rebuilder and the worker for a while.
func (s *stage) reconcileFor(t *testing.T, d time.Duration) {
	t.Helper()
	s.reconcileTwice(t, d, 1)
}

// reconcileTwice runs several reconcilers at once, as if no lock kept them apart.
func (s *stage) reconcileTwice(t *testing.T, d time.Duration, at int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var running sync.WaitGroup
	for range at {
		reconciler := s.reconciler(&keys{held: map[string]bool{}})
		running.Go(func() { reconciler.Run(ctx) })
	}
	running.Go(func() { s.rebuild.Run(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			s.work(t)
			pause(ctx, 100*time.Millisecond)
		}
	})
	running.Wait()
}

// intentSide are the intended stocks.
type intentSide struct{ *stage }

func (i intentSide) IntendStock(
	_ context.Context, id string, change model.StockChange, _ model.Idempotency,
) (model.StockIntent, bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	stock := i.voucher.Stock
	if change.Stock != nil {
		stock = *change.Stock
	} else {
		stock += *change.Delta
	}
	if stock >= i.voucher.Stock || stock < i.voucher.Stock-i.voucher.Remaining {
		return model.StockIntent{}, false, nil
	}
	intent := model.StockIntent{VoucherID: id, Stock: stock, Revision: i.voucher.Revision, CreatedAt: time.Now()}
	i.intents = append(i.intents, intent)
	return intent, true, nil
}

func (i intentSide) DropIntent(_ context.Context, intent model.StockIntent) error {
	if err := i.step("db.dropintent"); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for n, known := range i.intents {
		if known == intent {
			i.intents = append(i.intents[:n:n], i.intents[n+1:]...)
			i.voucher.Revision++
			return nil
		}
	}
	return nil
}

func (i intentSide) Intents(_ context.Context, olderThan time.Duration) ([]model.StockIntent, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var old []model.StockIntent
	for _, intent := range i.intents {
		if time.Since(intent.CreatedAt) >= olderThan {
			old = append(old, intent)
		}
	}
	return old, nil
}
