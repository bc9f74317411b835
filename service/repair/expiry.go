package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	expiryPage = 4000 // orders are read at once
	// expiryBatch orders share a transaction, which locks the voucher's row last, for half as long as two of 500.
	expiryBatch    = 1000
	expiryVouchers = 3 // are worked on at once: while one waits for a locked row, the others go on
	// expiryLanes transactions of a voucher run at once. A look uses at most half of the connections of those who sell.
	expiryLanes = 2
	// expiryRest is a lane's rest per transaction time, for sales, less as orders wait, and none from budget.Answer on.
	expiryRest = 1

	// waitlistEvery is the pause between two looks for waitlists that stand still, which an alert tells an operator.
	waitlistEvery = 3 * budget.Answer

	// askAtOnce and askTimeout bound the questions to the provider: a slow one does not hold up every order.
	askAtOnce  = 8
	askTimeout = budget.Settled / 3
	// askTries looks without the provider's answer leave the rest of that time to an instance that may reach it.
	askTries = int(budget.Survey / budget.Call / 2)
)

// ExpiryStore is what expiry asks of the database: repository.Orders and Payments.
type ExpiryStore interface {
	Overdue(ctx context.Context, paying bool, last model.OverdueOrder, limit int) ([]model.OverdueOrder, error)
	Expire(ctx context.Context, ids []string) ([]model.Order, error)
	Lapse(ctx context.Context) error // announces the paid orders whose code's time has ended
	Waitlists(ctx context.Context) (waiting, held int64, err error)
	Started(ctx context.Context, orderIDs []string) ([]model.Payment, error)
}

// Provider is what expiry asks of payments.
type Provider interface {
	// Ask asks the provider what became of a payment, and applies it. An error says that it did not answer.
	Ask(ctx context.Context, payment model.Payment) error
}

var errNoProvider = errors.New("no payment provider is configured")

// Expiry closes orders that were not paid in time, and returns their units, in both order modes. It looks by an index:
// a delayed message would cost every purchase a publish, and ask the database too.
type Expiry struct {
	Store    ExpiryStore
	Provider Provider // nil: nothing is known then of payments that were started before
	// Announce tells the instances of a voucher that has units on sale again.
	Announce func(ctx context.Context, voucherID string) error
	Clocks   *Clocks // knows whether the database's clock has leapt
	Metrics  *telemetry.Expiry
	Log      *slog.Logger

	failing *backoff.Failures // vouchers that are left alone for a while
}

// Run expires orders while this instance is elected, or nobody can be, until ctx ends.
func (e *Expiry) Run(ctx context.Context, by Elector) {
	once := backoff.Policy{First: budget.Answer, Longest: budget.Answer, Forget: budget.Answer}
	e.failing = backoff.New(once, maxAgain, time.Now)
	elected := election{Elector: by, job: "expiry", alone: true, limit: budget.Settled, looks: []*look{
		{do: e.expireUnpaid, pause: budget.Glance, rest: budget.Glance, what: "orders", done: "expired"},
		{do: e.expirePaying, pause: budget.Brief, rest: budget.Call, what: "orders", done: "expired", tries: askTries},
		{do: e.lookAtWaitlists, pause: waitlistEvery, rest: waitlistEvery, what: "the waitlists", done: "counted"},
		{
			do: e.Store.Lapse, pause: budget.Survey, rest: budget.Survey, what: "codes whose time has ended",
			done: "announced",
		},
	}}
	elected.run(ctx)
}

func (e *Expiry) lookAtWaitlists(ctx context.Context) error {
	waiting, held, err := e.Store.Waitlists(ctx)
	if err != nil {
		return fmt.Errorf("look at the waitlists: %w", err)
	}
	e.Metrics.Waiting.Set(float64(waiting))
	e.Metrics.Held.Set(float64(held))
	return nil
}

func (e *Expiry) expireUnpaid(ctx context.Context) error {
	return e.expireAll(ctx, false, func(page []model.OverdueOrder) ([]model.OverdueOrder, error) { return page, nil })
}

// expirePaying asks the provider for overdue orders' payments, and expires those without money, beside the rest.
func (e *Expiry) expirePaying(ctx context.Context) error {
	asking, enough := context.WithTimeout(ctx, askTimeout)
	defer enough()
	return e.expireAll(ctx, true, func(page []model.OverdueOrder) ([]model.OverdueOrder, error) {
		return e.askForAll(ctx, asking, page)
	})
}

// expireAll expires overdue orders page by page, oldest first. It reads past the orders of a voucher in trouble.
func (e *Expiry) expireAll(
	ctx context.Context, paying bool, may func(page []model.OverdueOrder) ([]model.OverdueOrder, error),
) error {
	var failed []error
	var last model.OverdueOrder
	for {
		asked := time.Now()
		page, err := e.Store.Overdue(ctx, paying, last, expiryPage)
		if err != nil {
			return errors.Join(append(failed, fmt.Errorf("look for overdue orders: %w", err))...)
		}
		if len(page) > 0 {
			e.Clocks.saw(ctx, page[0].ExpiresAt.Add(page[0].Overdue), asked)
		}
		over, err := may(e.due(page))
		failed = append(failed, err, e.expirePage(ctx, over))
		if len(page) < expiryPage || ctx.Err() != nil {
			return errors.Join(failed...)
		}
		last = page[len(page)-1]
	}
}

// due leaves out the orders that have not had the time to be paid, because the database's clock has leapt.
func (e *Expiry) due(page []model.OverdueOrder) []model.OverdueOrder {
	due := slices.DeleteFunc(slices.Clone(page), func(o model.OverdueOrder) bool { return e.Clocks.robbed(o.Window) })
	e.Metrics.Paused.Add(float64(len(page) - len(due)))
	return due
}

func (e *Expiry) expirePage(ctx context.Context, page []model.OverdueOrder) error {
	byVoucher := map[string][]model.OverdueOrder{}
	var vouchers []string // in the order of their first overdue order
	for _, order := range page {
		if byVoucher[order.VoucherID] == nil {
			vouchers = append(vouchers, order.VoucherID)
		}
		byVoucher[order.VoucherID] = append(byVoucher[order.VoucherID], order)
	}
	var group errgroup.Group
	group.SetLimit(expiryVouchers)
	failed := make([]error, len(vouchers))
	for i, id := range vouchers {
		group.Go(func() error { failed[i] = e.expireVoucher(ctx, id, byVoucher[id]); return nil })
	}
	_ = group.Wait()
	return errors.Join(failed...)
}

// expireVoucher expires a voucher's orders, up to expiryBatch a transaction. An error leaves it alone for a while.
func (e *Expiry) expireVoucher(ctx context.Context, voucherID string, orders []model.OverdueOrder) error {
	var returned atomic.Bool
	var lanes errgroup.Group
	lanes.SetLimit(expiryLanes)
	for batch := range slices.Chunk(orders, expiryBatch) {
		lanes.Go(func() error {
			if e.failing.Wait(voucherID) > 0 {
				return nil
			}
			began := time.Now()
			expired, err := e.expireBatch(ctx, batch)
			if expired > 0 {
				returned.Store(true)
			}
			if err != nil {
				e.failing.Begin(voucherID)
				return fmt.Errorf("expire orders of voucher %s: %w", voucherID, err)
			}
			poll.Pause(ctx, laneRest(time.Since(began), batch[0].Overdue))
			return nil
		})
	}
	err := lanes.Wait()
	if returned.Load() {
		if err := e.Announce(ctx, voucherID); err != nil {
			e.Log.WarnContext(ctx, "the instances learn of returned units by the age of their copies only",
				slog.String("voucher_id", voucherID), slog.Any("error", err))
		}
	}
	return err
}

// laneRest is how long a lane rests behind a transaction that took so long, whose first order has waited for overdue.
func laneRest(took, overdue time.Duration) time.Duration {
	calm := 1 - overdue.Seconds()/budget.Answer.Seconds()
	return time.Duration(max(calm, 0) * expiryRest * float64(took))
}

func (e *Expiry) expireBatch(ctx context.Context, batch []model.OverdueOrder) (expired int, err error) {
	ids := each(batch, func(order model.OverdueOrder) string { return order.ID })
	failpoint.Reach(failpoint.BeforeExpire)
	orders, err := e.Store.Expire(ctx, ids)
	if err != nil {
		return 0, err
	}
	failpoint.Reach(failpoint.AfterExpire)
	e.Metrics.Expired.Add(float64(len(orders)))
	return len(orders), nil
}

// askForAll asks the provider until asking ends, and returns orders answered for, and those that waited long enough.
func (e *Expiry) askForAll(ctx, asking context.Context, page []model.OverdueOrder) ([]model.OverdueOrder, error) {
	started, err := e.Store.Started(ctx, each(page, func(order model.OverdueOrder) string { return order.ID }))
	if err != nil {
		return nil, fmt.Errorf("read the payments of overdue orders: %w", err)
	}
	unanswered := e.ask(asking, started)
	var asked []model.OverdueOrder
	var first error
	for _, order := range page {
		err := unanswered[order.ID]
		switch {
		case err == nil:
			asked = append(asked, order)
		case order.Overdue > budget.Survey:
			asked = append(asked, order)
			e.Log.WarnContext(ctx,
				"an order expires although the payment provider could not be asked; money that comes goes back",
				slog.String("order_id", order.ID), slog.Any("error", err))
		case first == nil:
			first = err // one stands for all: the provider is away for each of them
		}
	}
	return asked, first
}

// ask asks for payments, and returns the errors of those that the provider did not answer for, by order.
func (e *Expiry) ask(ctx context.Context, payments []model.Payment) map[string]error {
	var mu sync.Mutex
	unanswered := map[string]error{}
	var group errgroup.Group
	group.SetLimit(askAtOnce)
	for _, payment := range payments {
		group.Go(func() error {
			err := errNoProvider
			if e.Provider != nil {
				err = e.Provider.Ask(ctx, payment)
			}
			if err != nil {
				mu.Lock()
				unanswered[payment.OrderID] = fmt.Errorf("ask for payment %s: %w", payment.ID, err)
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are of each payment its own
	return unanswered
}

const (
	// clockEvery is between two comparisons of the clocks, and clockTimeout bounds one.
	clockEvery   = 5 * time.Second
	clockTimeout = clockEvery / 2
	// clockLeap is how far the database's clock is ahead when it has leapt: no order must be paid in less.
	clockLeap = time.Second
)

// Clocks compares the clocks of database, Redis and instance. Leaps show against the process' monotonic clock.
type Clocks struct {
	Database, Redis func(ctx context.Context) (time.Time, error)
	Metrics         *telemetry.Gauges
	Log             *slog.Logger

	mu    sync.Mutex
	at    time.Time     // when the database's clock was last read and was right
	db    time.Time     // what it said
	since time.Time     // since when it is ahead of that; zero: it is not
	ahead time.Duration // by how much
}

// Run compares until ctx ends.
func (c *Clocks) Run(ctx context.Context) {
	c.compare(ctx)
	poll.Every(ctx, clockEvery, func() { c.compare(ctx) })
}

func (c *Clocks) compare(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	for server, read := range map[string]func(context.Context) (time.Time, error){"database": c.Database, "redis": c.Redis} {
		asked := time.Now()
		now, err := read(ctx)
		if err != nil {
			continue // others say that the server is away
		}
		c.Metrics.WithLabelValues(server).Set(now.Sub(asked.Add(time.Since(asked) / 2)).Seconds())
		if server == "database" {
			c.saw(ctx, now, asked)
		}
	}
}

func (c *Clocks) saw(ctx context.Context, now, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := now.Sub(c.db) - time.Since(c.at) // by that at the least: the question took a while
	leapt := !c.at.IsZero() && ahead > clockLeap
	switch {
	case leapt && c.since.IsZero():
		c.since, c.ahead = time.Now(), ahead
		c.Log.WarnContext(ctx, "the database's clock has leapt ahead: orders whose window is shorter expire when they have had that time", slog.Duration("by", ahead))
	case leapt && time.Since(c.since) < c.ahead:
		c.ahead = max(c.ahead, ahead)
	default: // or it is so for as long as it leapt, and every order has had its time
		c.at, c.db, c.since, c.ahead = asked, now, time.Time{}, 0
	}
}

// robbed reports whether a leap of the database's clock, and not time, has ended the window of an order.
func (c *Clocks) robbed(window time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead > window && time.Since(c.since) < window
}

// messageAge is how long a webhook's message is known again: longer than any provider repeats one.
const messageAge = 30 * budget.Day

// Janitor deletes what is too old to be asked for. Several instances may do so at once.
type Janitor struct {
	Store interface {
		PurgeIdempotency(ctx context.Context, age time.Duration) (int64, error)
		PurgeMessages(ctx context.Context, age time.Duration) (int64, error)
		PurgeAccounts(ctx context.Context, age time.Duration) (int64, error)
	}
	Log *slog.Logger
}

// Run deletes now and every hour, until ctx ends.
func (j Janitor) Run(ctx context.Context) {
	j.purge(ctx)
	poll.Every(ctx, budget.Hour, func() { j.purge(ctx) })
}

func (j Janitor) purge(ctx context.Context) {
	if gone, err := j.Store.PurgeIdempotency(ctx, budget.Week); err != nil && ctx.Err() == nil {
		j.Log.WarnContext(ctx, "old idempotency keys were not purged", slog.Any("error", err))
	} else if gone > 0 {
		j.Log.InfoContext(ctx, "old idempotency keys were purged", slog.Int64("keys", gone))
	}
	if _, err := j.Store.PurgeMessages(ctx, messageAge); err != nil && ctx.Err() == nil {
		j.Log.WarnContext(ctx, "old webhook messages were not purged", slog.Any("error", err))
	}
	if _, err := j.Store.PurgeAccounts(ctx, budget.Day); err != nil && ctx.Err() == nil { // no token lasts longer
		j.Log.WarnContext(ctx, "erased accounts were not purged", slog.Any("error", err))
	}
}
