package service

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/telemetry"
	"seckill/model"
	"seckill/service/cache"
	"seckill/service/servicetest"
)

// hotDesk is the hot copy of one voucher; its calls take a millisecond, or what
// a test says.
type hotDesk struct {
	mu      sync.Mutex
	state   model.CopyState
	epoch   int64
	voucher model.Voucher
	marks   map[string]string // user → order id
	pending map[string]model.Reservation
	tombs   map[string]bool
	locked  map[string]bool // users whose lock somebody else holds
	down    error

	took        time.Duration // a Reserve
	confirmTook time.Duration
	buyersTook  time.Duration
	admit       func(a model.ReserveRequest) *model.ReserveResult // first word, when not nil

	reserves, confirms, releases, reads, looks, buyersRead, held atomic.Int64

	settled chan []string
	missed  chan struct{}
}

func newHotDesk(v model.Voucher) *hotDesk {
	return &hotDesk{
		state: model.CopyOpen, epoch: 1, voucher: v, marks: map[string]string{}, pending: map[string]model.Reservation{},
		tombs: map[string]bool{}, locked: map[string]bool{}, took: servicetest.QueryTime, confirmTook: servicetest.QueryTime,
		settled: make(chan []string), missed: make(chan struct{}),
	}
}

// with changes the copy.
func (h *hotDesk) with(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	h.voucher.Version++
}

// pause is how long a call takes; it fails as the copy does then.
func (h *hotDesk) pause(ctx context.Context, took time.Duration) error {
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down
}

func (h *hotDesk) remaining() int64 { return h.voucher.Stock - int64(len(h.marks)) }

func (h *hotDesk) Reserve(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error) {
	h.reserves.Add(1)
	if err := h.pause(ctx, h.took); err != nil {
		return nil, model.Unavailable("no answer", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	answers := make([]model.ReserveResult, len(asked))
	for i, a := range asked {
		answers[i] = h.reserve(a)
	}
	return answers, nil
}

func (h *hotDesk) reserve(a model.ReserveRequest) model.ReserveResult {
	if h.admit != nil {
		if given := h.admit(a); given != nil {
			return *given
		}
	}
	refuse := func(err error) model.ReserveResult {
		return model.ReserveResult{Reservation: model.Reservation{Order: model.Order{ID: a.OrderID}, Epoch: h.epoch}, Err: err}
	}
	mark, marked := h.marks[a.UserID]
	switch refusal := h.voucher.Refusal(time.Now()); {
	case h.state != model.CopyOpen:
		return refuse(model.ErrCopyClosed)
	case h.tombs[a.OrderID]:
		return refuse(model.ErrOrderClosed)
	case refusal != nil:
		return refuse(refusal)
	case h.locked[a.UserID] && !a.Locked:
		return refuse(model.ErrUserLocked)
	case marked:
		return refuse(model.AlreadyOrdered(model.Order{ID: mark, Status: h.pending[mark].Status}))
	case h.remaining() <= 0:
		return refuse(model.SoldOut())
	}
	r := model.Reservation{Epoch: h.epoch, Order: model.Order{
		ID: a.OrderID, VoucherID: a.VoucherID, UserID: a.UserID, Status: model.OrderProcessing,
		Price: h.voucher.Price, Currency: "CNY", CreatedAt: time.Now(),
	}}
	h.marks[a.UserID], h.pending[r.ID] = r.ID, r
	h.voucher.Version++
	return model.ReserveResult{Reservation: r}
}

func (h *hotDesk) Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error) {
	h.confirms.Add(1)
	if err := h.pause(ctx, h.confirmTook); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	open := make([]bool, len(reservations))
	for i, r := range reservations {
		open[i] = h.state == model.CopyOpen && r.Epoch == h.epoch
	}
	return open, nil
}

func (h *hotDesk) Release(ctx context.Context, release model.Release) (bool, error) {
	h.releases.Add(1)
	if err := h.pause(ctx, servicetest.QueryTime); err != nil {
		return false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != model.CopyOpen {
		return false, nil
	}
	if h.marks[release.UserID] == release.OrderID {
		delete(h.marks, release.UserID)
		h.voucher.Version++
	}
	delete(h.pending, release.OrderID)
	return true, nil
}

func (h *hotDesk) Pending(ctx context.Context, orderID string) (model.Reservation, bool, error) {
	h.looks.Add(1)
	if err := h.pause(ctx, servicetest.QueryTime); err != nil {
		return model.Reservation{}, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.pending[orderID]
	if voucherID, _ := model.VoucherOf(orderID); !ok && (h.state != model.CopyOpen || voucherID != h.voucher.ID) {
		return r, false, model.ErrCopyClosed
	}
	return r, ok, nil
}

func (h *hotDesk) OrderOf(ctx context.Context, _, userID string) (string, *model.Reservation, error) {
	if err := h.pause(ctx, servicetest.QueryTime); err != nil {
		return "", nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != model.CopyOpen {
		return "", nil, model.ErrCopyClosed
	}
	if r, ok := h.pending[h.marks[userID]]; ok {
		return r.ID, &r, nil
	}
	return h.marks[userID], nil, nil
}

func (h *hotDesk) OrdersOf(ctx context.Context, buyers []model.Buyer) ([]model.BuyersOrder, error) {
	h.held.Add(1)
	found := make([]model.BuyersOrder, len(buyers))
	if err := h.pause(ctx, servicetest.QueryTime); err != nil {
		return found, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, b := range buyers {
		found[i].OrderID = h.marks[b.UserID]
		if r, ok := h.pending[found[i].OrderID]; ok {
			found[i].Pending = &r
		}
	}
	return found, nil
}

func (h *hotDesk) Watch(ctx context.Context, settled func([]string), missed func()) error {
	missed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case ids := <-h.settled:
			settled(ids)
		case <-h.missed:
			missed()
		}
	}
}

func (h *hotDesk) Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	h.reads.Add(1)
	if err := h.pause(ctx, servicetest.QueryTime); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	read := map[string]model.HotCopy{}
	for _, id := range ids {
		read[id] = model.HotCopy{State: model.CopyClosed}
		if id == h.voucher.ID {
			v := h.voucher
			v.Remaining = h.remaining()
			v.Version += h.epoch << 40
			read[id] = model.HotCopy{State: h.state, Epoch: h.epoch, Voucher: v.At(time.Now()), Reserved: int64(len(h.pending))}
		}
	}
	return read, nil
}

func (h *hotDesk) Buyers(ctx context.Context, _ string, yield func(string) error) error {
	h.buyersRead.Add(1)
	h.mu.Lock()
	users := make([]string, 0, len(h.marks))
	for user := range h.marks {
		users = append(users, user)
	}
	h.mu.Unlock()
	if err := h.pause(ctx, h.buyersTook); err != nil {
		return err
	}
	for _, user := range users {
		if err := yield(user); err != nil {
			return err
		}
	}
	return nil
}

// hotShop is a service of asynchronous orders over fakes, in the bubble of one test.
type hotShop struct {
	*Orders

	table   *servicetest.Table
	rows    *rows
	hot     *hotDesk
	line    *line
	keys    *servicetest.Locks
	cache   *cache.Vouchers
	seller  *asyncSeller
	doctor  *doctor
	metrics *prometheus.Registry
}

// newHotShop sells the voucher of newTable.
func newHotShop(t *testing.T, change func(*OrderDeps, *AsyncDeps)) hotShop {
	t.Helper()
	db := servicetest.NewTable()
	s := hotShop{
		table: db, rows: &rows{table: db, byID: map[string]model.Order{}}, hot: newHotDesk(db.Voucher), line: newLine(),
		keys: servicetest.NewLocks(), doctor: &doctor{}, metrics: prometheus.NewRegistry(),
	}
	metrics, log := telemetry.New(s.metrics), slog.New(slog.DiscardHandler)
	var err error
	if s.cache, err = cache.OfHotCopies(db, s.hot, metrics, log); err != nil {
		t.Fatal(err)
	}
	orders := OrderDeps{
		Store: s.rows, Cache: s.cache, Locks: s.keys, LockWait: time.Second, Metrics: metrics, Log: log,
		Announce: func(context.Context, string) error { return nil }, Selling: func() error { return nil },
	}
	async := AsyncDeps{
		Hot: s.hot, Queue: s.line, Released: s.rows.DoneOrders, Epochs: sameEpoch(s.hot).Read, Rebuild: s.doctor.rebuild,
		ScriptLocks: true, BacklogMaxAge: 30 * time.Second, Admission: telemetry.NewAdmission(s.metrics),
	}
	if change != nil {
		change(&orders, &async)
	}
	s.Orders = NewAsyncOrders(orders, async)
	s.seller = s.Orders.seller.(*asyncSeller)
	t.Cleanup(func() {
		s.Close(context.Background())
		s.cache.Close(context.Background())
	})
	return s
}
