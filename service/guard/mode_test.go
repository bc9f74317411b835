package guard

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
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
		deployment, err := m.Adopt(t.Context(), func(ctx context.Context, _ model.OrderMode) (model.ModeRecord, error) { return read(ctx) }, tt.lacks)
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
			check.That(t, strings.Contains(m.Probe(t.Context()).Error(), part), "%v does not name %s", m.Probe(t.Context()), part)
		}
	})
}
