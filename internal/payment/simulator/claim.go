package simulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"seckill/internal/budget"
	"seckill/internal/poll"
)

// errSecondLedger tells of a second simulator.
var errSecondLedger = errors.New("another instance on this database has the payment simulator, and this one keeps a ledger of its own, which does not know the payments of the other: " +
	"set SECKILL_PAYMENT_SIMULATOR=off here, SECKILL_PAYMENT_URL to the other one's simulator, and SECKILL_WEBHOOK_SECRETS as there")

// Claim finds out whether this instance is the only one on its database that has the simulator, by a claim that one of them
// can hold. A second ledger does not know the first one's payments, and each instance asks its own: that does for trying
// out, and is logged. An error says that the database did not answer until ctx ended.
func Claim(ctx context.Context, held func(ctx context.Context) (bool, error), log *slog.Logger) error {
	var (
		ours   bool
		failed error     // of the last question, unless it was cut short
		taken  time.Time // when another instance was first seen to have it; a question that fails says nothing of that
	)
	_ = poll.Until(ctx, budget.Call/10, func() (bool, error) {
		var err error
		ours, err = held(ctx)
		if ctx.Err() == nil {
			failed = err
		}
		if err == nil && taken.IsZero() {
			taken = time.Now()
		}
		return ours || !taken.IsZero() && time.Since(taken) >= budget.Call, nil
	})
	switch {
	case ours:
	case failed != nil:
		return fmt.Errorf("claim the payment simulator: %w", failed)
	default:
		log.WarnContext(ctx, "this is a second payment simulator", slog.Any("error", errSecondLedger))
	}
	return nil
}
