package e2e_test

import (
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// crowd is users who obey the contract: after a 429, a 503 or no answer they ask again, until the answer is final.
type crowd struct {
	instances []*app // asked in turn
	voucher   string
	lives     func(t *testing.T, user string) // what each of them does
	names     func(n int) string              // who comes, see coming
	turn      atomic.Int64                    // of the instances

	mu       sync.Mutex
	told     map[string]model.Order // 201, 202, or ALREADY_ORDERED with its order
	promised map[string]string      // orders of a 201 or 202, and their users
	heard    map[string]time.Time   // when an order was heard of
	samples  []sampled              // every answer
	yes      int                    // 201 or 202
	soldOut  int
	refused  int // 503
	failed   int // no answer at all
	buyers   int // those who are still asking
}

type sampled struct {
	ended          time.Time
	final, promise bool
}

func newCrowd(a *app, voucher string, others ...*app) *crowd {
	c := &crowd{
		instances: append([]*app{a}, others...), voucher: voucher, names: a.user,
		told: map[string]model.Order{}, promised: map[string]string{}, heard: map[string]time.Time{},
	}
	c.lives = func(t *testing.T, user string) { c.insist(t, user) }
	return c
}

// buy lets every user buy, `parallel` at a time, until all have been told.
func (c *crowd) buy(t *testing.T, names []string, parallel int) {
	t.Helper()
	queue := make(chan string, len(names))
	for _, name := range names {
		queue <- name
	}
	close(queue)
	c.ask(parallel, func() {
		for user := range queue {
			c.lives(t, user)
		}
	})()
}

// ask lets so many buyers ask at a time. What it returns waits for their end.
func (c *crowd) ask(parallel int, ask func()) (wait func()) {
	c.join(parallel)
	var buyers sync.WaitGroup
	for range parallel {
		buyers.Go(func() {
			defer c.join(-1)
			ask()
		})
	}
	return buyers.Wait
}

func (c *crowd) join(count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buyers += count
}

// buying is buy in the background; what it returns waits for its end.
func (c *crowd) buying(t *testing.T, names []string, parallel int) (wait func()) {
	t.Helper()
	c.join(1) // before it returns, so that nobody believes that the crowd is through
	var load sync.WaitGroup
	load.Go(func() {
		defer c.join(-1)
		c.buy(t, names, parallel)
	})
	return load.Wait
}

// coming lets new users buy, `parallel` at a time, until stop is called, which waits for those at it.
func (c *crowd) coming(t *testing.T, parallel int) (stop func()) {
	t.Helper()
	var (
		next atomic.Int64
		over atomic.Bool
	)
	wait := c.ask(parallel, func() {
		for !over.Load() {
			c.lives(t, c.names(int(next.Add(1))))
		}
	})
	return func() {
		over.Store(true)
		wait()
	}
}

// insist repeats one user's request until the answer is final.
func (c *crowd) insist(t *testing.T, user string) (got api.Answer) {
	t.Helper()
	first := int(c.turn.Add(1))
	got = remote.Insist(t, user, func(attempt int) (api.Answer, error) {
		got, err := c.instances[(first+attempt)%len(c.instances)].Place(t, c.voucher, user)
		c.count(t, got, err)
		return got, err
	})
	c.note(t, user, got)
	return got
}

func (c *crowd) count(t *testing.T, got api.Answer, err error) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.samples = append(c.samples, sampled{time.Now(), !remote.Again(got, err), err == nil && got.Sells()})
	switch {
	case err != nil:
		c.failed++
	case got.Code() == model.CodeUnavailable:
		c.refused++
		check.That(t, got.Header.Get("Retry-After") != "", "UNAVAILABLE without Retry-After: %s", got.Body)
	}
}

func (c *crowd) note(t *testing.T, user string, got api.Answer) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case got.Sells():
		c.yes++
		order := remote.Decode[model.Order](t, got)
		c.told[user], c.promised[order.ID], c.heard[order.ID] = order, user, time.Now()
	case got.Code() == model.CodeAlreadyOrdered: // an answer was lost before
		c.told[user] = model.Order{ID: remote.Decode[api.Problem](t, got).OrderID, UserID: user}
	case got.Code() == model.CodeSoldOut:
		c.soldOut++
	default:
		t.Errorf("%s: %d %s", user, got.Status, got.Body)
	}
}

func (c *crowd) moreSales(t *testing.T, count int) { c.more(t, "sales", &c.yes, count) }

func (c *crowd) moreRefusals(t *testing.T, count int) { c.more(t, "refusals", &c.refused, count) }

func (c *crowd) sales() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.yes
}

// more also returns once nobody asks: a stalled machine may miss the sale's middle, and the end's checks still hold.
func (c *crowd) more(t *testing.T, what string, counter *int, count int) {
	t.Helper()
	read := func() (n, buyers int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return *counter, c.buyers
	}
	from, _ := read()
	check.Eventually(t, what+" go on", func() bool {
		n, buyers := read()
		return n >= from+count || buyers == 0
	})
}

func (a *app) ready(t *testing.T) {
	t.Helper()
	check.Patiently(t, "it is ready", func() bool { return a.Status("/readyz") == http.StatusOK })
}

func (a *app) unready(t *testing.T) {
	t.Helper()
	check.Patiently(t, "it is not ready", func() bool { return a.Status("/readyz") == http.StatusServiceUnavailable })
}

const earlyGroup = "gold"

// coolEarly is the number of a fair voucher with a cool-down and an early beginning, and without a waitlist.
const coolEarly = 6

// fair are a voucher's fair rules: every second has a cool-down, third an early beginning, fifth a waitlist.
func fair(n int, fields map[string]any) map[string]any {
	now := time.Now().UTC()
	all := map[string]any{}
	if n%2 == 0 {
		all["cooldown"] = "1h"
	}
	if n%3 == 0 {
		all["early"] = map[string]any{"groups": []string{earlyGroup}, "begin_at": now.Add(-3 * time.Hour)}
		all["begin_at"], all["end_at"] = now.Add(time.Hour), now.Add(2*time.Hour)
	}
	if n%5 == 0 {
		all["waitlist"] = true
	}
	maps.Copy(all, fields)
	return all
}

// stranger is the same instance, asked by users of no group.
func (a *app) stranger() *app {
	other := *a
	other.Groups = nil
	return &other
}

func (a *app) closeSale(t testing.TB, voucherID string) {
	t.Helper()
	now := time.Now().UTC()
	window := map[string]any{"begin_at": now.Add(-2 * time.Hour), "end_at": now.Add(-time.Hour)}
	got := a.Insist(t, http.MethodPatch, "/admin/vouchers/"+voucherID, a.Admin(t), window)
	check.Equal(t, "the sale is over", got.Status, http.StatusOK)
}

func (a *app) awaitDrawn(t testing.TB, voucherID string) (proof model.Draw) {
	t.Helper()
	check.Patiently(t, "it is drawn", func() bool {
		proof = remote.Decode[model.Draw](t, a.Insist(t, http.MethodGet, "/vouchers/"+voucherID+"/draw", "", nil))
		return proof.DrawnAt != nil
	})
	return proof
}

// drawn waits for a draw, and checks that it has everybody who was told so, is as anybody computes it, and gives each
// of the first, and nobody else, an order: one more for each cancellation. It returns the drawn entries.
func (a *app) drawn(t testing.TB, voucherID string, entered map[string]string, gone map[string]bool) (users []string) {
	t.Helper()
	proof := a.awaitDrawn(t, voucherID)
	check.Must(t, check.ErrorOf(runs(t, nil, "draw", "verify", "--url", a.URL, "--voucher", voucherID)))
	orders := map[string]model.Order{}
	for _, order := range a.conserved(t, voucherID, nil) {
		orders[order.UserID] = order
	}
	leaves := remote.Decode[model.DrawnLeaves](t,
		a.Insist(t, http.MethodGet, "/vouchers/"+voucherID+"/draw/entries?limit=5000", "", nil)).Items
	check.Equal(t, "entries", len(leaves), len(entered))
	report := a.reportOf(t, voucherID)
	check.That(t, proof.Winners == min(report.Stock, int64(len(leaves))) && report.Draw.OrderKept,
		"of %d units: %+v %+v", report.Stock, proof, report.Draw)
	check.Equal(t, "orders", report.Orders, int64(len(orders))) // one for each user
	for place, leaf := range leaves {
		user, ok := entered[leaf]
		order, has := orders[user]
		if served := place < int(proof.Winners)+len(gone); !ok || has != served ||
			order.Live() != (served && !gone[user]) {
			t.Errorf("place %d of %d is of %q: entered: %t, has canceled: %t, has an order: %t: %+v", place+1,
				len(leaves),
				user, ok, gone[user], has, order)
		}
		users = append(users, user)
	}
	return users
}
