package repair

import (
	"context"
	"errors"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// pended is the hot copies with reservations that may not be read.
type pended struct {
	HotCopies

	step func(name string) error
}

func (p pended) Pendings(ctx context.Context, voucherID string, epoch int64, yield func(model.Reservation) error) error {
	if err := p.step("hot.pendings"); err != nil {
		return err
	}
	return p.HotCopies.Pendings(ctx, voucherID, epoch, yield)
}

// The mode changes while no instance sells and no order waits. Otherwise it stays, with the reason; what cannot be
// asked is a reason too.
func TestModeChange(t *testing.T) {
	t.Parallel()
	const sync, async = model.ModeSync, model.ModeAsync
	away := errors.New("away")
	runs := func(mode model.OrderMode) model.Instance { return model.Instance{Name: "shop-1:8080", Mode: mode} }
	for name, tt := range map[string]struct {
		from, to model.OrderMode
		alive    []model.Instance
		stage    func(t *testing.T, s *stage)
		fails    string // what cannot be asked
		says     []string
	}{
		"nobody sells, and everything is done": {from: async, to: sync, stage: func(_ *testing.T, s *stage) { s.sell("o1", "u1") }},
		"back to async":                        {from: sync, to: async},
		"the instances of the other mode wait": {from: async, to: sync, alive: []model.Instance{runs(sync)}},
		"an instance sells":                    {from: async, to: sync, alive: []model.Instance{runs(sync), runs(async)}, says: []string{"shop-1:8080."}},
		"an instance sells in sync":            {from: sync, to: async, alive: []model.Instance{runs(sync)}, says: []string{"shop-1:8080."}},
		"an order is queued":                   {from: async, to: sync, stage: func(_ *testing.T, s *stage) { s.publish(s.admit("o1", "u1")) }, says: []string{"1 messages", "1 reservations"}},
		"an order is in no message":            {from: async, to: sync, stage: func(_ *testing.T, s *stage) { s.admit("o1", "u1") }, says: []string{"0 messages", "1 reservations"}},
		"both": {
			from: async, to: sync, alive: []model.Instance{runs(async)},
			stage: func(_ *testing.T, s *stage) { s.publish(s.admit("o1", "u1")) }, says: []string{"shop-1:8080.", "1 messages"},
		},
		"the instances cannot be asked":   {from: sync, to: async, fails: "alive"},
		"the queue cannot be asked":       {from: async, to: sync, fails: "queue.backlog"},
		"the hot copies cannot be asked":  {from: async, to: sync, fails: "hot.pendings"},
		"the vouchers cannot be asked":    {from: async, to: sync, fails: "db.watched"},
		"the rows cannot be asked":        {from: async, to: sync, stage: func(_ *testing.T, s *stage) { s.admit("o1", "u1") }, fails: "db.find"},
		"the mode itself cannot be asked": {from: async, to: sync, fails: "mode.read"},
		"a hot copy cannot be closed":     {from: async, to: sync, fails: "hot.close"},
	} {
		onStages(t, name, func(t *testing.T, s *stage) {
			s.mode.Mode = tt.from
			if tt.stage != nil {
				tt.stage(t, s)
			}
			if tt.fails != "" {
				s.fail(tt.fails, away)
			}
			deps := s.parts()
			deps.Hot = pended{deps.Hot, s.step}
			change := ModeChange{Deps: deps, Commit: modeSide{s}.Change, Alive: func(context.Context) ([]model.Instance, error) {
				return tt.alive, s.step("alive")
			}}
			err := change.Do(t.Context(), tt.to)
			want, code := tt.from, model.CodeConflict
			switch {
			case tt.fails != "":
				check.Is(t, "the change", err, away)
				code = ""
			case tt.says == nil:
				check.Must(t, err)
				want, code = tt.to, ""
			}
			if code != "" {
				check.Equal(t, "the code of "+err.Error(), model.CodeOf(err), code)
			}
			for _, part := range tt.says {
				check.That(t, strings.Contains(err.Error(), part), "%q does not name %q", err, part)
			}
			check.Equal(t, "the mode afterwards", s.mode.Mode, want)
			check.Equal(t, "the hot copy is open", s.hot().State() == model.CopyOpen, tt.from == sync || want == tt.from)
		})
	}
}
