package service

import (
	"context"
	"testing"

	"seckill/internal/payment"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// unanswered is a provider that answers no refund while its caller waits.
type unanswered struct{ *cashier }

func (u unanswered) Refund(ctx context.Context, _ string, _ payment.Refund) error {
	<-ctx.Done()
	return ctx.Err()
}

// A refund that a stop has cut off is as it was: the next start repeats it at once, and the attempts, by which the pauses
// grow, are those of the provider.
func TestARefundThatAStopCutsOffIsNoAttempt(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		deps := c.service.PaymentDeps
		deps.Provider = unanswered{c}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := NewPayments(deps).refund(ctx, c.refund); err == nil {
			t.Error("it was cut off and says nothing")
		}
		c.with(func() {
			check.Equal(t, "attempts", c.refund.Attempts, 0)
			check.Equal(t, "the refund", c.refund.Status, model.RefundPending)
			check.Equal(t, "what is kept of it", c.refund.Error, "")
		})
	})
}
