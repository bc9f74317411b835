package repair_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/draw"
	"seckill/internal/ids"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
	"seckill/service/repair"
)

type lottery struct {
	db       *sqldb.Database
	draws    *repository.Draws
	vouchers *repository.Vouchers
	voucher  model.Voucher
}

func newLottery(t testing.TB, options sqldb.Options, units int64, entries int) lottery {
	t.Helper()
	db := check.Value(sqldb.Open(t.Context(), options))(t)
	t.Cleanup(func() { check.Must(t, db.Close()) })
	check.Must(t, db.Migrate(t.Context()))
	l := lottery{db: db, draws: repository.NewDraws(db, time.Hour), vouchers: repository.NewVouchers(db, "CNY")}
	asked := model.VoucherFields{
		Title: "drawn", Price: 1, FaceValue: 2, Stock: units, Allocation: model.ByDraw,
		BeginAt: time.Now().Add(-2 * time.Hour), EndAt: time.Now().Add(-time.Hour),
	}
	l.voucher = check.Value(l.vouchers.Create(t.Context(), check.Value(ids.New())(t), asked, "",
		model.Idempotency{}))(t)
	const some = 5000
	for from := 0; from < entries; from += some {
		count := min(some, entries-from)
		args := make([]any, 0, 4*count)
		for n := range count {
			args = append(args, l.voucher.ID, fmt.Sprintf("user-%07d", from+n), draw.Random(draw.NonceSize),
				time.Now().UTC())
		}
		statement := "INSERT INTO draw_entries (voucher_id, user_id, nonce, entered_at) VALUES (?, ?, ?, ?)" +
			strings.Repeat(", (?, ?, ?, ?)", count-1)
		check.Must(t, check.ErrorOf(db.SQL().ExecContext(t.Context(), statement, args...)))
	}
	check.Must(t, check.ErrorOf(db.SQL().ExecContext(t.Context(), "UPDATE draws SET entries = ? WHERE voucher_id = ?",
		entries, l.voucher.ID)))
	return l
}

// nobody is a lock server that is away: every instance draws.
type nobody struct{ repair.Seats }

func electing(seats repair.Seats, log ...*slog.Logger) repair.Elector {
	by := repair.Elector{
		Seats: seats, Deployment: "test", Metrics: telemetry.NewElections(prometheus.NewRegistry()),
		Log: slog.New(slog.DiscardHandler),
	}
	if len(log) > 0 {
		by.Log = log[0]
	}
	return by
}

func (nobody) Lock(context.Context, string, time.Duration) (model.Lease, error) {
	return nil, errors.New("away")
}

type crashing struct {
	*repository.Draws

	steps atomic.Int64 // that are left
	cut   context.CancelFunc
}

func (c *crashing) step() error {
	if c.steps.Add(-1) < 0 {
		c.cut()
		return context.Canceled
	}
	return nil
}

func (c *crashing) Close(ctx context.Context, id string) (model.DrawState, error) {
	if err := c.step(); err != nil {
		return model.DrawState{}, err
	}
	state, err := c.Draws.Close(ctx, id)
	return state, errors.Join(err, c.step())
}

func (c *crashing) SetRoot(ctx context.Context, id string, root []byte) error {
	if err := c.step(); err != nil {
		return err
	}
	return errors.Join(c.Draws.SetRoot(ctx, id, root), c.step())
}

func (c *crashing) Serve(ctx context.Context, id string, from int64, next []model.Drawn) (int64, error) {
	if err := c.step(); err != nil {
		return 0, err
	}
	served, err := c.Draws.Serve(ctx, id, from, next)
	return served, errors.Join(err, c.step())
}

func (l lottery) run(ctx context.Context, store repair.DrawStore, cut context.CancelFunc) {
	d := &repair.Draws{
		Store: store, Metrics: telemetry.NewDraws(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
		Announce: func(context.Context, string) error { cut(); return nil }, // it is done
		Drain:    func(context.Context, string) error { return nil },
	}
	d.Run(ctx, electing(nobody{}))
}

func (l lottery) holds(t testing.TB) model.Draw {
	t.Helper()
	proof := check.Value(l.draws.Proof(t.Context(), l.voucher.ID, false))(t)
	var leaves []string
	for cursor := ""; ; {
		page := check.Value(l.draws.Leaves(t.Context(), l.voucher.ID, false, cursor, 5000))(t)
		leaves = append(leaves, page.Items...)
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	check.Must(t, draw.Verify(proof, leaves))
	check.Equal(t, "winners", proof.Winners, min(l.voucher.Stock, proof.Entries))
	audit := check.Value(l.vouchers.Audit(t.Context(), l.voucher.ID))(t)
	check.That(t, audit.Balanced && audit.Database.LiveOrders == proof.Winners, "%+v", audit)
	return proof
}

// Wherever a drawer dies, the next one goes on, and two at once serve nobody twice.
func TestADrawGoesOn(t *testing.T) {
	t.Parallel()
	const entries, units = 2500, 1200
	options := sqldb.Options{DSN: testserver.Schema(t), Slack: check.Deadline}
	l := newLottery(t, options, units, entries)
	for died := range 20 {
		ctx, cut := context.WithCancel(t.Context())
		store := &crashing{Draws: l.draws, cut: cut}
		store.steps.Store(1) // one step, and the process is dead behind it
		l.run(ctx, store, cut)
		if check.Value(l.draws.Proof(t.Context(), l.voucher.ID, false))(t).DrawnAt != nil {
			check.That(t, died >= 4, "it died only %d times", died)
			break
		}
	}
	l.holds(t)

	l = newLottery(t, options, units, entries)
	ctx, cut := context.WithCancel(t.Context())
	defer cut()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { l.run(ctx, l.draws, cut) })
	}
	both.Wait()
	l.holds(t)
}

func TestADrawWaitsForItsBeacon(t *testing.T) {
	t.Parallel()
	l := newLottery(t, sqldb.Options{DSN: testserver.Schema(t), Slack: check.Deadline}, 3, 10)
	check.Must(t, check.ErrorOf(l.db.SQL().ExecContext(t.Context(), "UPDATE vouchers SET beacon = 'lottery'")))
	ctx, cut := context.WithCancel(t.Context())
	defer cut()
	var told strings.Builder
	d := &repair.Draws{
		Store: l.draws, Metrics: telemetry.NewDraws(prometheus.NewRegistry()),
		Log:   slog.New(slog.NewTextHandler(heard{&told, cut}, nil)),
		Drain: func(context.Context, string) error { return nil },
	}
	d.Run(ctx, electing(nobody{}, d.Log))
	waits := check.Value(l.draws.Proof(t.Context(), l.voucher.ID, false))(t)
	check.That(t, strings.Contains(told.String(), "waits for the value") && waits.Root != "" && waits.Secret == "" &&
		len(check.Value(l.draws.Due(t.Context()))(t)) == 0, "%+v %s", waits, told.String())
	check.Must(t, check.ErrorOf(l.draws.SetValue(t.Context(), l.voucher.ID, "7 11", "boss")))
	ctx, cut = context.WithCancel(t.Context())
	defer cut()
	l.run(ctx, l.draws, cut)
	drawn := l.holds(t)
	check.That(t, drawn.Algorithm == draw.WithBeacon && drawn.Root == waits.Root, "%+v", drawn)
}

func TestChangedEntriesAreNotDrawn(t *testing.T) {
	t.Parallel()
	l := newLottery(t, sqldb.Options{DSN: testserver.Schema(t), Slack: check.Deadline}, 2, 10)
	ctx, cut := context.WithCancel(t.Context())
	defer cut()
	store := &crashing{Draws: l.draws, cut: cut}
	store.steps.Store(4) // closed, and rooted
	l.run(ctx, store, cut)
	check.Must(t, check.ErrorOf(l.db.SQL().ExecContext(t.Context(),
		"UPDATE draw_entries SET nonce = REVERSE(nonce) WHERE user_id = 'user-0000003'")))
	ctx, cut = context.WithCancel(t.Context())
	defer cut()
	store = &crashing{Draws: l.draws, cut: cut}
	var told strings.Builder
	d := &repair.Draws{
		Store: store, Metrics: telemetry.NewDraws(prometheus.NewRegistry()),
		Log: slog.New(slog.DiscardHandler),
	}
	d.Run(ctx, electing(nobody{}, slog.New(slog.NewTextHandler(heard{&told, cut}, nil))))
	check.That(t, strings.Contains(told.String(), "somebody has changed them"), "%s", told.String())
	check.Equal(t, "served", check.Value(l.draws.Proof(t.Context(), l.voucher.ID, false))(t).Winners, 0)
}

// An order promised before its voucher became a draw is decided first, and what it leaves is drawn.
func TestADrawWaitsForPromisedOrders(t *testing.T) {
	t.Parallel()
	b := openBackstage(t, testserver.SharedRedis(t))
	l := b.becomesADraw(t, 2)
	told := &strings.Builder{}
	draws := func() {
		ctx, cut := context.WithCancel(t.Context())
		defer cut()
		d := &repair.Draws{
			Store: l.draws, Drain: b.Rebuilder.Drain, Metrics: telemetry.NewDraws(prometheus.NewRegistry()),
			Log:      slog.New(slog.DiscardHandler),
			Announce: func(context.Context, string) error { cut(); return nil },
		}
		d.Run(ctx, electing(nobody{}, slog.New(slog.NewTextHandler(heard{told, cut}, nil))))
	}
	draws()
	check.Need(t, strings.Contains(told.String(), "wait for the orders of before the draw"),
		"an order was queued, and the draw did not wait: %s", told.String())
	check.That(t, check.Value(l.draws.Proof(t.Context(), l.voucher.ID, false))(t).ClosedAt == nil,
		"it was closed while an order was queued")
	late := check.Value(b.hot.Reserve(t.Context(), admissions(l.voucher.ID, 7, 8)))(t)
	check.That(t, errors.Is(late[0].Err, model.ErrCopyClosed), "a unit that is to be drawn was sold: %v", late[0].Err)

	b.background(t, b.consume)
	check.Patiently(t, "what the order left is drawn", func() bool { // it may wait for a slow consumer more than once
		draws()
		return check.Value(l.draws.Proof(t.Context(), l.voucher.ID, false))(t).Winners == 1
	})
	order := check.Value(b.orders.Find(t.Context(), []string{model.OrderID("o0000000", l.voucher.ID)}))(t)
	check.Equal(t, "the promised order", order[model.OrderID("o0000000", l.voucher.ID)].Status, model.OrderUnpaid)
	audit := check.Value(l.vouchers.Audit(t.Context(), l.voucher.ID))(t)
	check.That(t, audit.Balanced && audit.Database.LiveOrders == 2, "%+v", audit.Database)
}

// A user has a queued order of a voucher, which becomes a draw, which two users enter, and which is over.
func (b *backstage) becomesADraw(t *testing.T, stock int64) lottery {
	t.Helper()
	l := lottery{draws: repository.NewDraws(b.db, time.Hour), vouchers: b.vouchers, voucher: b.voucher(t, stock)}
	b.buy(t, l.voucher.ID, 0, 1)
	patch := func(p model.VoucherPatch) {
		check.Must(t, check.ErrorOf(b.vouchers.Patch(t.Context(), l.voucher.ID, p)))
	}
	patch(model.VoucherPatch{Allocation: new(model.ByDraw)})
	for _, user := range []string{"alice", "bob"} {
		entered := check.Value(l.draws.Enter(t.Context(), []model.Entering{{VoucherID: l.voucher.ID, UserID: user}}))(t)
		check.Must(t, entered[0].Err)
	}
	patch(model.VoucherPatch{EndAt: new(time.Now().Add(-time.Second))})
	return l
}

type heard struct {
	told *strings.Builder
	cut  context.CancelFunc
}

func (h heard) Write(text []byte) (int, error) {
	if strings.Contains(string(text), "could not be done") || strings.Contains(string(text), "waits for the value") {
		h.cut()
	}
	return h.told.Write(text)
}

// `make bench-draw` prints the seconds in all, and until the last winner's order. DRAW_ENTRIES sets the entries.
func BenchmarkDraw(b *testing.B) {
	entries, err := strconv.Atoi(os.Getenv("DRAW_ENTRIES"))
	if err != nil {
		entries = 1_000_000
	}
	const units = 10_000
	options := sqldb.Options{DSN: testserver.MariaDB(b, "--innodb-buffer-pool-size=1G",
		"--innodb-log-file-size=256M").DSN(testserver.DefaultSchema), Slack: check.Deadline}
	l := newLottery(b, options, units, entries)
	ctx, cut := context.WithCancel(b.Context())
	defer cut()
	store := &timed{Draws: l.draws}
	for b.Loop() {
		began := time.Now()
		l.run(ctx, store, cut)
		b.ReportMetric(0, "ns/op") // which says nothing
		b.ReportMetric(time.Since(began).Seconds(), "drawn-s")
		b.ReportMetric(store.won.Sub(began).Seconds(), "orders-s")
		b.ReportMetric(store.rooted.Sub(began).Seconds(), "rooted-s")
	}
	l.holds(b)
}

type timed struct {
	*repository.Draws

	rooted, won time.Time
}

func (s *timed) SetRoot(ctx context.Context, id string, root []byte) error {
	defer func() { s.rooted = time.Now() }()
	return s.Draws.SetRoot(ctx, id, root)
}

func (s *timed) Serve(ctx context.Context, id string, from int64, next []model.Drawn) (int64, error) {
	if from < 10_000 {
		defer func() { s.won = time.Now() }()
	}
	return s.Draws.Serve(ctx, id, from, next)
}
