package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"seckill/model"
)

// abandonedIntent is when the process of an intent is taken for dead: it had
// longer than any call may take.
const abandonedIntent = 10 * time.Second

// restore drops an intent and makes the hot copy's stock that of the database.
func (p Parts) restore(ctx context.Context, intent model.StockIntent) error {
	id := intent.VoucherID
	if err := p.Database.DropIntent(ctx, intent); err != nil {
		return fmt.Errorf("drop the intended stock of voucher %s: %w", id, err)
	}
	found, err := p.Database.GetMany(ctx, []string{id})
	if err != nil {
		return fmt.Errorf("read voucher %s: %w", id, err)
	}
	if v, ok := found[id]; ok {
		if _, err := p.Hot.Apply(ctx, v); err != nil && !errors.Is(err, model.ErrCopyClosed) {
			return fmt.Errorf("restore the stock of voucher %s: %w", id, err)
		}
	}
	return nil
}

// dropIntents takes back what dead processes intended.
func (r *Reconciler) dropIntents(ctx context.Context) error {
	intents, err := r.Database.Intents(ctx, abandonedIntent)
	if err != nil {
		return fmt.Errorf("read intended stocks: %w", err)
	}
	for _, intent := range intents {
		if err := r.restore(ctx, intent); err != nil {
			return err
		}
		r.Metrics.Reconciled("intent", 1)
		r.Log.InfoContext(ctx, "an intended stock was taken back", slog.String("voucher_id", intent.VoucherID))
	}
	return nil
}
