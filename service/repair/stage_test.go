package repair

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository/hotcopy/hotcopytest"
	"seckill/service/backlog"
	"seckill/service/guard"
	"seckill/service/servicetest"
)

// stage has asynchronous orders of one voucher in memory: database, hot copies, queue. Tests break it by step.
type stage struct {
	mu sync.Mutex

	mode      model.ModeRecord
	voucher   model.Voucher
	record    model.EpochRecord
	unwatched bool // the reconciler is not shown the voucher
	rows      map[string]model.Order
	outbox    []model.Release
	intents   []model.StockIntent

	redis *hotcopytest.Copies

	messages []model.Reservation // not acknowledged; Sequence tells their place
	last     uint64
	letters  []model.DeadLetter
	poison   map[string]bool  // ids whose data the database refuses
	unfit    map[string]error // and ids of which no row can be made

	on    map[string]func() error // runs before a step, and may fail it
	steps []string

	metrics *prometheus.Registry
	counts  *telemetry.Worker
	*Worker
}

// newStage is a voucher on sale with 10 of 10 units and a cool-down, whose copy of epoch 1 is open.
func newStage(t testing.TB) *stage {
	t.Helper()
	s := &stage{
		mode: model.ModeRecord{Mode: model.ModeAsync, Deployment: "d"}, voucher: servicetest.NewTable().Voucher,
		record: model.EpochRecord{VoucherID: "v1", Epoch: 1, OpenEpoch: 1},
		rows:   map[string]model.Order{}, redis: hotcopytest.New(t), poison: map[string]bool{},
		unfit: map[string]error{}, on: map[string]func() error{},
		metrics: prometheus.NewRegistry(),
	}
	s.voucher.Revision, s.voucher.Cooldown = 1, model.Window(time.Hour)
	s.redis.Add(s.voucher)
	s.redis.Before = func(step string) error { return s.step("hot." + step) }
	s.counts = telemetry.NewWorker(s.metrics)
	s.Worker = s.employ(servicetest.NewLocks())
	return s
}

func (s *stage) parts() Deps {
	return Deps{
		Database: dbSide{s}, Epochs: dbSide{s}, Hot: s.redis, Queue: queueSide{stage: s},
		Backlog: watching(queueSide{stage: s}),
		Mode:    modeSide{s}.Read, Metrics: s.counts, Log: slog.New(slog.DiscardHandler),
	}
}

func watching(q backlog.Queue) *backlog.Watch {
	return backlog.New(q, 0, nil, slog.New(slog.DiscardHandler))
}

func (s *stage) hot() *hotcopytest.Sale { return s.redis.Sale("v1") }

func (s *stage) changeHot(change func(*hotcopytest.Sale)) {
	change(s.hot())
	s.hot().Touch()
}

func (s *stage) offer(stock int64) {
	s.voucher.Stock, s.voucher.Remaining = stock, stock
	s.hot().Set("stock", stock)
}

func (s *stage) step(name string) error {
	s.mu.Lock()
	s.steps = append(s.steps, name)
	before := s.on[name]
	s.mu.Unlock()
	if before == nil {
		return nil
	}
	return before()
}

func (s *stage) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, step := range s.steps {
		if step == name {
			n++
		}
	}
	return n
}

// fail makes a step fail from now on; nil heals it.
func (s *stage) fail(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on[name] = func() error { return err }
}

// admit reserves in the open copy, without publishing.
func (s *stage) admit(orderID, userID string) model.Reservation {
	return s.hot().Admit(orderID, userID)
}

// admits reserves n orders, o0 of u0 and so on.
func (s *stage) admits(n int) (all []model.Reservation) {
	for i := range n {
		all = append(all, s.admit(fmt.Sprint("o", i), fmt.Sprint("u", i)))
	}
	return all
}

func (s *stage) publish(reservations ...model.Reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	for _, r := range reservations {
		r.Sequence = s.last
		s.messages = append(s.messages, r)
	}
}

func (s *stage) work(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	batch := slices.Clone(s.messages)
	s.mu.Unlock()
	verdicts := s.Persister.Persist(t.Context(), batch)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, err := range verdicts {
		if err == nil {
			s.messages = slices.DeleteFunc(s.messages, func(r model.Reservation) bool {
				return r.ID == batch[i].ID && r.Sequence == batch[i].Sequence
			})
		}
	}
}

func (s *stage) sell(orderID, userID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[orderID] = model.Order{
		ID: orderID, VoucherID: "v1", UserID: userID, Status: model.OrderUnpaid, CreatedAt: time.Now().Add(-time.Hour),
	}
	s.voucher.Remaining--
	s.voucher.Version++
	s.hot().Mark(userID, orderID)
}

func (s *stage) cancel(orderID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close(s.rows[orderID], model.OrderCanceled, "")
	s.voucher.Remaining++
	s.voucher.Version++
}

func (s *stage) close(row model.Order, status model.OrderStatus, reason string) model.Order {
	now := time.Now()
	row.Status, row.Reason, row.ClosedAt = status, reason, &now
	if status == model.OrderCanceled {
		row.CooldownUntil = model.CooldownUntil(s.voucher.Cooldown, now, 0)
	}
	s.rows[row.ID] = row
	release := row.Release()
	release.ID = int64(len(s.steps)*1000 + len(s.outbox) + 1)
	s.outbox = append(s.outbox, release)
	return row
}

func (s *stage) remaining() int64 { return s.hot().Voucher().Remaining }

// balanced checks the conservation by id set of a quiet system.
func (s *stage) balanced(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	live := map[string]string{}
	for id, row := range s.rows {
		if row.Live() {
			check.That(t, live[row.UserID] == "", "%s has two live orders", row.UserID)
			live[row.UserID] = id
		}
		if until := row.CooldownUntil; until != nil && until.After(time.Now()) {
			knows := s.hot().Cooling()[row.UserID]
			check.That(t, !knows.Before(*until), "%s waits until %v, and the hot copy knows of %v", row.UserID, until,
				knows)
		}
	}
	check.That(t, s.voucher.Remaining == s.voucher.Stock-int64(len(live)),
		"the database: %d of %d remain beside %d live orders", s.voucher.Remaining, s.voucher.Stock, len(live))
	check.That(t, s.hot().State() == model.CopyOpen && s.hot().Epoch() == s.record.Epoch && s.record.Open(),
		"the copy is %s at epoch %d, the record %+v", s.hot().State(), s.hot().Epoch(), s.record)
	marks := s.hot().Marks()
	for user, id := range marks {
		check.Equal(t, "the live order of "+user+", as the mark names it", live[user], id)
	}
	check.That(t, len(marks) == len(live) && len(s.hot().Pending()) == 0, "%d marks, %d reservations, %d live orders",
		len(marks), len(s.hot().Pending()), len(live))
}

type queueSide struct {
	*stage
	backlog.Queue // of which nothing else is asked

	cut *bool // off from it is the instance that asks; nil: it is not
}

func (q queueSide) see(step string) error {
	if q.cut != nil && *q.cut {
		return model.Unavailable("The queue does not answer.", nil)
	}
	return q.step(step)
}

func (q queueSide) Backlog(context.Context) (model.Backlog, error) {
	if err := q.see("queue.backlog"); err != nil {
		return model.Backlog{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	floor := q.last
	if len(q.messages) > 0 {
		floor = slices.MinFunc(q.messages, func(a, b model.Reservation) int {
			return cmp.Compare(a.Sequence,
				b.Sequence)
		}).Sequence - 1
	}
	return model.Backlog{Messages: int64(len(q.messages)), LastSequence: q.last, AckFloor: floor}, nil
}

func (q queueSide) BacklogOf(ctx context.Context, _ string) (model.Backlog, error) {
	return q.Backlog(ctx)
}

func (q queueSide) PendingOf(ctx context.Context, voucherID string) (model.Backlog, error) {
	return q.BacklogOf(ctx, voucherID)
}

func (q queueSide) Buried(context.Context) (map[string]bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	buried := map[string]bool{}
	for _, letter := range q.letters {
		if letter.Reservation != nil {
			buried[letter.Reservation.ID] = true
		}
	}
	return buried, nil
}

func (q queueSide) Publish(_ context.Context, reservations []model.Reservation) error {
	if err := q.step("queue.publish"); err != nil {
		return err
	}
	q.publish(reservations...)
	return nil
}

func (q queueSide) Bury(_ context.Context, letter model.DeadLetter) error {
	if err := q.step("queue.bury"); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if letter.Reservation != nil && slices.ContainsFunc(q.letters, func(l model.DeadLetter) bool {
		return l.Reservation != nil && l.Reservation.ID == letter.Reservation.ID
	}) {
		return nil // it lies there already
	}
	letter.Sequence = uint64(len(q.letters) + 1)
	q.letters = append(q.letters, letter)
	return nil
}

func (q queueSide) DeadLetter(_ context.Context, sequence uint64) (model.DeadLetter, error) {
	for _, letter := range q.letters {
		if letter.Sequence == sequence {
			return letter, nil
		}
	}
	return model.DeadLetter{}, model.NotFound("dead letter")
}

func (q queueSide) RemoveDeadLetter(_ context.Context, sequence uint64) error {
	q.letters = slices.DeleteFunc(q.letters, func(l model.DeadLetter) bool { return l.Sequence == sequence })
	return nil
}

func TestMain(m *testing.M) { servicetest.Main(m) }

func onStage(t *testing.T, test func(*testing.T, *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newStage(t)) })
}

func onStages(t *testing.T, name string, test func(*testing.T, *stage)) {
	t.Helper()
	servicetest.Bubble(t, name, func(t *testing.T) { test(t, newStage(t)) })
}

func (s *stage) serveRebuilds(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	var serving sync.WaitGroup
	serving.Go(func() { s.Rebuilder.Run(ctx) })
	synctest.Wait()
	cancel()
	serving.Wait()
}

// employ adds another process's worker; change may replace its parts.
func (s *stage) employ(locks Seats, change ...func(*Deps)) *Worker {
	parts := s.parts()
	for _, c := range change {
		c(&parts)
	}
	return New(parts, electing(locks), s.watcher().Selling)
}

func electing(locks Seats) Elector {
	return Elector{
		Seats: locks, Deployment: "test", Metrics: telemetry.NewElections(prometheus.NewRegistry()),
		Log: slog.New(slog.DiscardHandler),
	}
}

func (s *stage) watcher() *guard.Mode {
	w := guard.NewMode(modeSide{s}.Read, model.ModeAsync, slog.New(slog.DiscardHandler))
	_ = w.Refresh(context.Background())
	return w
}

func (s *stage) reconcileFor(t *testing.T, d time.Duration) {
	t.Helper()
	s.reconcileTwice(t, d, 1)
}

func (s *stage) settles(t *testing.T, d time.Duration) {
	t.Helper()
	s.reconcileFor(t, d)
	s.balanced(t)
}

// reconcileTwice runs several reconcilers at once, as if there were no lock.
func (s *stage) reconcileTwice(t *testing.T, d time.Duration, at int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var running sync.WaitGroup
	for i := range at {
		w := s.Worker
		if i > 0 {
			w = s.employ(servicetest.NewLocks())
		}
		running.Go(func() { w.Reconciler.Run(ctx) })
		running.Go(func() { w.Rebuilder.Run(ctx) })
	}
	running.Go(func() {
		for ctx.Err() == nil {
			s.work(t)
			poll.Pause(ctx, 100*time.Millisecond)
		}
	})
	running.Wait()
}
