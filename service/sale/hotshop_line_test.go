package sale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// line is a queue whose messages take a millisecond.
type line struct {
	mu      sync.Mutex
	queued  []model.Reservation
	backlog model.Backlog
	err     error // of a publish
	took    time.Duration
	during  func() // a publish

	published atomic.Int64 // messages
	looked    atomic.Int64
}

func newLine() *line { return &line{took: servicetest.QueryTime} }

func (l *line) Publish(ctx context.Context, reservations []model.Reservation) error {
	l.published.Add(1)
	if l.during != nil {
		l.during()
	}
	select {
	case <-time.After(l.took):
	case <-ctx.Done():
		return ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.queued = append(l.queued, reservations...)
	return nil
}

func (l *line) Backlog(context.Context) (model.Backlog, error) {
	l.looked.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.backlog, nil
}

func (l *line) Waiting(context.Context) (map[string]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	named := map[string]int64{}
	if l.backlog.Age > 0 {
		named["v1"] = max(l.backlog.Messages, 1)
	}
	return named, nil
}

func (l *line) BacklogOf(ctx context.Context, _ string) (model.Backlog, error) { return l.Backlog(ctx) }

func (l *line) with(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *line) users() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var users []string
	for _, r := range l.queued {
		users = append(users, r.UserID)
	}
	return users
}

type rows struct {
	OrderStore // of the rest nothing is called

	table   *servicetest.Table
	mu      sync.Mutex
	byID    map[string]model.Order
	err     error
	noted   []string
	queries atomic.Int64
	behind  int64        // Find finds nothing before it was asked so many times, like a cluster's member that is behind
	cancels atomic.Int64 // transactions
	heir    *model.Order // who gets the unit of a canceled order
}

func (r *rows) put(o model.Order) model.Order {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.VoucherID == "" {
		o.VoucherID = "v1"
	}
	r.byID[o.ID] = o
	return o
}

func (r *rows) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *rows) ask() (unlock func(), err error) {
	r.queries.Add(1)
	servicetest.Pass(servicetest.QueryTime)
	r.mu.Lock()
	return r.mu.Unlock, r.err
}

func (r *rows) Find(_ context.Context, ids []string) (map[string]model.Order, error) {
	unlock, err := r.ask()
	defer unlock()
	found := map[string]model.Order{}
	for _, id := range ids {
		if row, ok := r.byID[id]; ok && r.queries.Load() > r.behind {
			found[id] = row
		}
	}
	return found, err
}

func (r *rows) List(_ context.Context, q model.OrderQuery) (model.OrderPage, error) {
	unlock, err := r.ask()
	defer unlock()
	page := model.OrderPage{Items: []model.Order{}}
	for _, row := range r.byID {
		if row.UserID == q.UserID && (q.VoucherID == "" || row.VoucherID == q.VoucherID) &&
			(q.Status == "" || row.Status == q.Status) {
			page.Items = append(page.Items, row)
		}
	}
	slices.SortFunc(page.Items, func(a, b model.Order) int { return b.CreatedAt.Compare(a.CreatedAt) })
	if q.Limit > 0 && len(page.Items) > q.Limit {
		page.Items, page.NextCursor = page.Items[:q.Limit], "more"
	}
	return page, err
}

func (r *rows) Detail(_ context.Context, id string) (model.OrderDetail, error) {
	unlock, err := r.ask()
	defer unlock()
	row, ok := r.byID[id]
	if err == nil && !ok {
		err = model.NotFound("order")
	}
	return model.OrderDetail{Order: row}, err
}

func (r *rows) Cancel(_ context.Context, asked []model.Cancellation) ([]model.Canceled, error) {
	r.cancels.Add(1)
	unlock, err := r.ask()
	defer unlock()
	if err != nil {
		return nil, err
	}
	answers := make([]model.Canceled, len(asked))
	for i, one := range asked {
		row, ok := r.byID[one.OrderID]
		switch {
		case !ok || row.UserID != one.UserID:
			answers[i].Err = model.NotFound("order")
			continue
		case row.Status == model.OrderUnpaid:
			row.Status, answers[i].Changed = model.OrderCanceled, true
			if r.heir != nil {
				answers[i].Releases = []model.Release{{
					OrderID: row.ID, VoucherID: row.VoucherID, UserID: row.UserID, HeirID: r.heir.ID,
					HeirUserID: r.heir.UserID, Direct: true,
				}}
			}
			r.byID[one.OrderID] = row
		case row.Status != model.OrderCanceled:
			answers[i].Err = &model.Error{Code: model.CodeIllegalState, OrderStatus: row.Status}
			continue
		}
		answers[i].Order = row
	}
	return answers, nil
}

func (r *rows) DoneOrders(_ context.Context, ids []string) error {
	unlock, err := r.ask()
	defer unlock()
	r.noted = append(r.noted, ids...)
	return err
}

func (s hotShop) settle(orderID string) model.Order {
	row := s.sale.Pending()[orderID].Order
	row.Status = model.OrderUnpaid
	s.sale.Drop("pending", orderID)
	return s.rows.put(row)
}

func (s hotShop) persist(t *testing.T, userID string) model.Order {
	t.Helper()
	return s.settle(s.buys(t, userID).ID)
}

// queues makes the oldest message that old, and lets the watch see it.
func (s hotShop) queues(age time.Duration) {
	s.line.with(func() { s.line.backlog = model.Backlog{Age: age, Messages: 1} })
	servicetest.Pass(backlogEvery + time.Millisecond)
}

type doctor struct {
	relayed            int
	requests, replaces atomic.Int64
	replaced           atomic.Int64 // the epoch asked for last
}

func (d *doctor) rebuild(_ string, wrong int64) {
	if wrong == 0 {
		d.requests.Add(1)
		return
	}
	d.replaces.Add(1)
	d.replaced.Store(wrong)
}

func (d *doctor) relay(context.Context, string) error {
	d.relayed++
	return nil
}

func (s hotShop) buys(t *testing.T, userID string) model.Order {
	t.Helper()
	order, err := s.Place(t.Context(), userID, "v1")
	if err != nil || order.Status != model.OrderProcessing {
		t.Fatalf("%s: %+v, %v; want an order that is processing", userID, order, err)
	}
	return order
}

func (s *Orders) unavailable(t *testing.T, userID string) error {
	t.Helper()
	began := time.Now()
	err := check.ErrorOf(s.Place(t.Context(), userID, "v1"))
	servicetest.Hears(t, "the caller", err, model.CodeUnavailable)
	servicetest.Took(t, "the answer to "+userID, began, 0, s.deps.LockWait+longestBesideTheLock)
	return err
}

func (s *Orders) shows(t *testing.T, userID, orderID string, wait time.Duration, want model.OrderStatus) {
	t.Helper()
	order, err := s.Get(t.Context(), userID, orderID, wait)
	check.That(t, err == nil && order.Status == want && order.ID == orderID && order.UserID == userID,
		"%s is shown %+v, %v; want %s, which is %s", userID, order, err, orderID, want)
}

func (s *Orders) cancels(t *testing.T, userID, orderID string) {
	t.Helper()
	order, err := s.Cancel(t.Context(), userID, orderID)
	check.That(t, err == nil && order.Status == model.OrderCanceled && order.ID == orderID, "%s cancels %s: %+v, %v",
		userID, orderID, order, err)
}

// longestBesideTheLock is what the contract lets an answer take besides the wait for the user's lock.
const longestBesideTheLock = 5 * time.Second

// hangsUp is a user whose connection breaks meanwhile: the request goes on without anybody who would hear the answer.
func (s *Orders) hangsUp(t *testing.T, userID string, after time.Duration) {
	t.Helper()
	ctx, hangUp := context.WithTimeout(t.Context(), after)
	go func() {
		defer hangUp()
		_, _ = s.Place(ctx, userID, "v1")
	}()
	<-ctx.Done()
	synctest.Wait()
}

func (s *Orders) rush(t *testing.T, users int) (sold, soldOut int64) {
	t.Helper()
	var yes, no atomic.Int64
	check.Volley(users, func(i int) {
		switch _, err := s.Place(t.Context(), fmt.Sprint("user", i), "v1"); {
		case err == nil:
			yes.Add(1)
		case model.CodeOf(err) == model.CodeSoldOut:
			no.Add(1)
		default:
			t.Error(err)
		}
	})
	return yes.Load(), no.Load()
}

func (s *Orders) refused(t *testing.T, userID string, want model.Code) model.Error {
	t.Helper()
	order, err := s.Place(t.Context(), userID, "v1")
	check.Need(t, err != nil && model.CodeOf(err) == want, "%s: %+v, %v; want %s", userID, order, err, want)
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok {
		return model.Error{}
	}
	return *refusal
}
