package e2e_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

// longestAnswer is the contract's: the lock's wait budget and five seconds;
// one more is for a machine that is busy with the rest of the tests. It is for
// the time in which the machine runs, because nobody answers while it does not.
const longestAnswer = time.Second + 5*time.Second + time.Second

// patience is how long a buyer of a crowd asks again: longer than any server of
// the tests is away, and than what a dead process left behind takes to settle.
const patience = 90 * time.Second

// crowd is a load of users who behave as the contract tells clients: whoever
// gets a 429, a 503 or no answer asks again, until he is told for good.
type crowd struct {
	instances []*app // asked in turn
	voucher   string

	mu       sync.Mutex
	told     map[string]model.Order // 201, 202, or ALREADY_ORDERED with its order
	promised map[string]string      // orders of a 201 or 202, and their users
	yes      int                    // 201 or 202
	refused  int                    // 503
	failed   int                    // no answer at all
	signal   chan struct{}          // a message per 201 or 202, for a test that waits for the middle of the sale
}

func newCrowd(a *app, voucher string, others ...*app) *crowd {
	return &crowd{
		instances: append([]*app{a}, others...), voucher: voucher,
		told: map[string]model.Order{}, promised: map[string]string{}, signal: make(chan struct{}, 100_000),
	}
}

// buy lets every user buy, `parallel` at a time, until all have been told.
func (c *crowd) buy(t *testing.T, names []string, parallel int) {
	t.Helper()
	queue := make(chan string, len(names))
	for _, name := range names {
		queue <- name
	}
	close(queue)
	var buyers sync.WaitGroup
	for range parallel {
		buyers.Go(func() {
			for user := range queue {
				c.insist(t, user)
			}
		})
	}
	buyers.Wait()
}

// insist repeats one user's request until the answer is final.
func (c *crowd) insist(t *testing.T, user string) {
	token := c.instances[0].token(t, user, model.RoleUser)
	deadline := time.Now().Add(patience)
	for attempt := int(user[len(user)-1]); time.Now().Before(deadline); attempt++ {
		a := c.instances[attempt%len(c.instances)]
		ran := testserver.Stopwatch()
		got, err := send(a.client, http.MethodPost, a.url+"/api/v1/vouchers/"+c.voucher+"/seckill", token, nil)
		if took := ran(); took > longestAnswer {
			t.Errorf("%s waited %v for an answer (%d)", user, took, got.status)
		}
		if err == nil && c.note(t, user, got) {
			return
		}
		if err != nil {
			c.mu.Lock()
			c.failed++
			c.mu.Unlock()
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Errorf("%s was never told", user)
}

// note keeps an answer, and tells whether it is final.
func (c *crowd) note(t *testing.T, user string, got answer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case got.status == http.StatusCreated || got.status == http.StatusAccepted:
		c.yes++
		order := decode[model.Order](t, got)
		c.told[user], c.promised[order.ID] = order, user
		c.signal <- struct{}{}
		return true
	case got.code() == model.CodeAlreadyOrdered: // an answer was lost before
		c.told[user] = model.Order{ID: decode[problem](t, got).OrderID, UserID: user}
		return true
	case got.code() == model.CodeSoldOut:
		return true
	case got.code() == model.CodeUnavailable:
		c.refused++
		if got.header.Get("Retry-After") == "" {
			t.Errorf("UNAVAILABLE without Retry-After: %s", got.body)
		}
		return false
	case got.code() == model.CodeLockBusy: // an order of his is being settled
		return false
	default:
		t.Errorf("%s: %d %s", user, got.status, got.body)
		return true
	}
}

// afterSales waits until so many were told yes.
func (c *crowd) afterSales(t *testing.T, count int) {
	t.Helper()
	deadline := time.After(patience)
	for range count {
		select {
		case <-c.signal:
		case <-deadline:
			t.Fatal("the sale did not get going")
		}
	}
}

// moreSales waits until so many more than now were told yes.
func (c *crowd) moreSales(t *testing.T, count int) {
	t.Helper()
	yes := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.yes
	}
	from := yes()
	until(t, patience, "the sale goes on", func() bool { return yes() >= from+count })
}

// status asks for a path of the main listener; 0 is no answer.
func (a *app) status(t *testing.T, path string) int {
	t.Helper()
	got, err := send(a.client, http.MethodGet, a.url+path, "", nil)
	if err != nil {
		return 0
	}
	return got.status
}
