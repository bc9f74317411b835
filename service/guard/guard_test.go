package guard

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// Without a schema only an instance in sync starts, and only where another process makes the schema: it waits for that.
func TestAdopt(t *testing.T) {
	t.Parallel()
	away, missing := errors.New("no such table"), errors.New("run seckill migrate")
	lacks := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	for name, tt := range map[string]struct {
		mode  model.OrderMode
		lacks func(context.Context) error
		adopt error
		want  error
		name  string
	}{
		"a schema":                          {mode: model.ModeAsync, name: "d1"},
		"sync, no schema of its own":        {mode: model.ModeSync, adopt: away, want: away},
		"sync, no schema of others yet":     {mode: model.ModeSync, adopt: away, lacks: lacks(missing)},
		"async, no schema of others yet":    {mode: model.ModeAsync, adopt: away, lacks: lacks(missing), want: missing},
		"async, a schema and other trouble": {mode: model.ModeAsync, adopt: away, lacks: lacks(nil), want: away},
	} {
		read := func(context.Context) (model.ModeRecord, error) {
			return model.ModeRecord{Mode: tt.mode, Deployment: "d1"}, tt.adopt
		}
		m := NewMode(read, tt.mode, slog.New(slog.DiscardHandler))
		deployment, err := m.Adopt(t.Context(),
			func(ctx context.Context, _ model.OrderMode) (model.ModeRecord, error) { return read(ctx) }, tt.lacks)
		check.Equal(t, name+": the deployment", deployment, tt.name)
		check.Is(t, name, err, tt.want)
		check.Equal(t, name+": it may sell", m.Selling() == nil, tt.adopt == nil)
	}
}

// An instance sells while the mode of the database is its own, as far as it knows.
func TestModeIsWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Pointer[model.ModeRecord] // nil: the database is away
		now.Store(&model.ModeRecord{Mode: model.ModeAsync})
		m := NewMode(func(context.Context) (record model.ModeRecord, err error) {
			if r := now.Load(); r != nil {
				return *r, nil
			}
			return record, errors.New("the database is away")
		}, model.ModeAsync, slog.New(slog.DiscardHandler))
		check.That(t, m.Selling() != nil && m.Probe(t.Context()) != nil, "it sells without knowing the mode")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx) }()
		defer func() { cancel(); <-done }()
		later := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		later(0)
		check.Must(t, errors.Join(m.Selling(), m.Probe(t.Context())))
		now.Store(nil)
		later(time.Minute)
		check.Is(t, "async without the database", m.Selling(), nil)
		now.Store(&model.ModeRecord{Mode: model.ModeSync})
		later(budget.Glance)
		check.Equal(t, "the code of another mode", model.CodeOf(m.Selling()), model.CodeUnavailable)
		for _, part := range []string{"sync", "async", "`seckill mode async`"} {
			said, _ := errors.AsType[*model.Error](m.Probe(t.Context()))
			check.That(t, strings.Contains(said.Detail, part), "/readyz says %q, without %s", said.Detail, part)
		}
	})
}

func TestMain(m *testing.M) { testserver.Main(m) }

func claimed(t *testing.T) (db *sqldb.Database, dsn string) {
	t.Helper()
	dsn = testserver.Schema(t)
	db = check.Value(sqldb.Open(t.Context(), sqldb.Options{DSN: dsn, Slack: check.Deadline}))(t)
	t.Cleanup(func() { _ = db.Close() })
	check.Must(t, db.Migrate(t.Context()))
	return db, dsn
}

func claimant(db *sqldb.Database) *Redis {
	return &Redis{
		claims: &repository.RedisClaims{DB: db}, log: slog.New(slog.DiscardHandler),
		identity: func(context.Context) (string, error) { return "ours", nil },
	}
}

// One of them claims their Redis; the others see it at their first look.
func TestInstancesThatStartTogetherSell(t *testing.T) {
	t.Parallel()
	db, _ := claimed(t)
	var all [8]*Redis
	for i := range all {
		all[i] = claimant(db)
	}
	check.Volley(len(all), func(i int) { check.Is(t, "a look", all[i].Look(t.Context()), nil) })
	for _, r := range all {
		check.Is(t, "an instance", r.Selling(), nil)
	}
}

// Each look renews the claim, also when the database wrote it just after the look began or in the future: after its
// clock was set back the claim must not look abandoned. One renewed elsewhere is left alone.
func TestRedisClaimIsRenewedAtEachLook(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0).UTC() // of the database, whose clock stands still
	db, dsn := claimed(t)
	r := claimant(db)
	check.Must(t, r.Look(t.Context()))
	fixed := check.Value(sqldb.Open(t.Context(),
		sqldb.Options{DSN: dsn + "?timestamp=" + strconv.FormatInt(now.Unix(), 10), Slack: check.Deadline}))(t)
	t.Cleanup(func() { _ = fixed.Close() })
	r.claims = &repository.RedisClaims{DB: fixed}
	raw := check.Value(sql.Open("mysql", dsn))(t)
	t.Cleanup(func() { _ = raw.Close() })
	for age, renewed := range map[time.Duration]bool{
		-time.Hour:             true,
		300 * time.Millisecond: false,
		999 * time.Millisecond: true,
		budget.Look:            true,
		2 * budget.Look:        true,
	} {
		_, err := raw.ExecContext(t.Context(), "UPDATE redis_claim SET renewed_at = ?", now.Add(-age))
		check.Must(t, err)
		check.Must(t, r.Look(t.Context()))
		if _, left, err := r.claims.Read(t.Context()); err != nil || (left == 0) != renewed {
			t.Errorf("a claim of an age of %v is %v old after the look, renewed %v: %v", age, left, renewed, err)
		}
	}
}
