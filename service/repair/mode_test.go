package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/poll"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
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
		w := NewModeWatcher(read, tt.mode, slog.New(slog.DiscardHandler))
		deployment, err := w.Adopt(t.Context(), func(ctx context.Context, _ model.OrderMode) (model.ModeRecord, error) { return read(ctx) }, tt.lacks)
		check.Equal(t, name+": the deployment", deployment, tt.name)
		check.Is(t, name, err, tt.want)
		check.Equal(t, name+": it may sell", w.Selling() == nil, tt.adopt == nil)
	}
}

func TestModeWatcher(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		w := NewModeWatcher(modeSide{s}.Read, model.ModeAsync, slog.New(slog.DiscardHandler))
		check.That(t, w.Selling() != nil && w.Probe(t.Context()) != nil, "it sells without knowing the mode")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		defer func() { cancel(); <-done }()
		synctest.Wait()
		check.Must(t, errors.Join(w.Selling(), w.Probe(t.Context())))
		s.fail("mode.read", errors.New("the database is away"))
		servicetest.Pass(time.Minute)
		if err := w.Selling(); err != nil {
			t.Errorf("async must sell on without the database: %v", err)
		}
		s.fail("mode.read", nil)
		s.mu.Lock()
		s.mode.SwitchingTo = model.ModeSync
		s.mu.Unlock()
		servicetest.Pass(400 * time.Millisecond)
		check.That(t, model.CodeOf(w.Selling()) == model.CodeUnavailable, "it sells while the mode is switched")
		s.mu.Lock()
		s.mode = model.ModeRecord{Mode: model.ModeSync}
		s.mu.Unlock()
		servicetest.Pass(400 * time.Millisecond)
		if err := w.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "sync") ||
			!strings.Contains(err.Error(), "async") || !strings.Contains(err.Error(), "seckill mode") {
			t.Errorf("%v", err)
		}
	})
}

func (s *stage) switcher() *ModeSwitch {
	return &ModeSwitch{
		Deps: s.parts(), Rebuilds: s.Rebuilder, Persist: s.Persister.Persist,
		BeginSwitch: modeSide{s}.BeginSwitch, FinishSwitch: modeSide{s}.FinishSwitch, Progress: func(string) {},
	}
}

func (d dbSide) Kept(ctx context.Context) ([]model.EpochRecord, error) { return d.Watched(ctx) }

// longOver is a voucher that nobody watches any more.
type longOver struct{ dbSide }

func (l longOver) Watched(context.Context) ([]model.EpochRecord, error) { return nil, nil }

// A sale that is over may be extended in the other mode, and again after that: its
// copy must not be taken then for what it was.
func TestSwitchClosesCopiesThatNobodyWatches(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o1", "u1")
		switcher := s.switcher()
		switcher.Deps.Epochs = longOver{dbSide{s}}
		check.Must(t, switcher.Switch(t.Context(), model.ModeSync))
		s.rows["o2"] = model.Order{ID: "o2", VoucherID: "v1", UserID: "u2", Status: model.OrderUnpaid} // sold in sync
		s.voucher.Remaining--
		check.Must(t, switcher.Switch(t.Context(), model.ModeAsync))
		s.settles(t, 10*time.Second)
	})
}

func TestSwitchIsNotEndedByARebuildThatWasQuicker(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.admit("o1", "u1") // never published
		s.on["db.close"] = func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.on, "db.close")
			s.record.Epoch++ // its first step
			return nil
		}
		if err := s.switchTo(t, model.ModeSync); err != nil || s.mode.Mode != model.ModeSync || !s.rows["o1"].Live() {
			t.Errorf("%v, %+v, %+v", err, s.mode, s.rows["o1"])
		}
	})
}

// A process that was stopped while it took units holds the row of the mode until
// the database takes it away.
func TestSwitchWaitsForTheRowOfTheMode(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		free := time.Now().Add(10 * time.Second)
		s.on["mode.finish"] = func() error {
			servicetest.Pass(5 * time.Second)
			if time.Now().Before(free) {
				return model.Unavailable("The database does not answer.", nil)
			}
			return nil
		}
		if err := s.switchTo(t, model.ModeSync); err != nil || s.mode.Mode != model.ModeSync {
			t.Errorf("%v, %+v", err, s.mode)
		}
		s.fail("mode.finish", model.Unavailable("The database does not answer.", nil))
		if err := s.switchTo(t, model.ModeAsync); model.CodeOf(err) != model.CodeUnavailable {
			t.Errorf("it goes on for ever: %v", err)
		}
	})
}

// switchTo switches beside a consumer, as the command does.
func (s *stage) switchTo(t *testing.T, mode model.OrderMode) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			poll.Pause(ctx, 100*time.Millisecond)
			s.work(t)
		}
	}()
	err := s.switcher().Switch(ctx, mode)
	cancel()
	<-done
	return err
}

// Orders in flight at every step survive the switch, and the switch survives
// every step it dies at.
func TestSwitchLosesNoOrder(t *testing.T) {
	t.Parallel()
	for _, dies := range []string{"", "db.watched", "db.close", "hot.close", "queue.backlog", "db.find", "mode.finish"} {
		onStages(t, "dies at "+dies, func(t *testing.T, s *stage) {
			s.sell("o1", "u1")
			s.publish(s.admit("o2", "u2"), s.admit("o3", "u3")) // queued
			late := s.admit("o4", "u4")                         // never published
			if dies != "" {
				s.fail(dies, errors.New("killed"))
				if err := s.switchTo(t, model.ModeSync); err == nil {
					t.Fatal("no error")
				}
				s.on = map[string]func() error{}
			}
			check.Must(t, s.switchTo(t, model.ModeSync))
			check.That(t, s.mode.Mode == model.ModeSync && s.mode.SwitchingTo == "" && s.hot().State() != model.CopyOpen, "%+v, the copy is %s", s.mode, s.hot().State())
			for i := range 4 {
				if id := fmt.Sprint("o", i+1); !s.rows[id].Live() {
					t.Errorf("%s: %+v", id, s.rows[id])
				}
			}
			s.publish(late) // its publisher was slow, and has told nobody 202
			check.Must(t, s.switchTo(t, model.ModeAsync))
			s.work(t)
			s.balanced(t)
			check.Equal(t, "what remains", s.voucher.Remaining, 6)
		})
	}
}
