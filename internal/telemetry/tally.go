package telemetry

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"seckill/internal/budget"
	"seckill/model"
)

const maxTallies = 64 // vouchers are told at once: those that were asked for last

// Tallies count the attempts to buy each existing voucher. The zero Tallies has counted none.
type Tallies struct {
	mu      sync.Mutex
	counted map[string]*tally // by voucher
}

type tally struct {
	first, latest time.Time
	told, stored  bool // nothing has come since Changed, or since Unstored
	placed        map[string]uint64
	took          []uint64
}

// Placed counts an attempt.
func (t *Tallies) Placed(voucherID, outcome string, took time.Duration) {
	if t == nil || outcome == string(model.CodeNotFound) || outcome == string(model.CodeValidation) {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counted == nil {
		t.counted = map[string]*tally{}
	}
	of := t.counted[voucherID]
	if of == nil {
		of = &tally{first: now, placed: map[string]uint64{}, took: make([]uint64, len(tallyBounds)+1)}
		t.counted[voucherID] = of
	}
	of.latest, of.told, of.stored = now, false, false
	of.placed[outcome]++
	n, _ := slices.BinarySearch(tallyBounds, took.Seconds())
	of.took[n]++
}

var tallyBounds = model.TallyBounds() //nolint:gochecknoglobals // constant

// Changed are the tallies of the vouchers in demand that have grown since the last call.
func (t *Tallies) Changed() map[string]model.Tally {
	now := time.Now().UTC()
	t.mu.Lock()
	defer t.mu.Unlock()
	grown := slices.DeleteFunc(slices.Collect(maps.Keys(t.counted)), func(id string) bool { return t.counted[id].told })
	slices.SortFunc(grown, func(a, b string) int { return t.counted[b].latest.Compare(t.counted[a].latest) })
	changed := map[string]model.Tally{}
	for _, id := range grown[:min(len(grown), maxTallies)] {
		of := t.counted[id]
		of.told = true
		changed[id] = model.Tally{At: now, Placed: maps.Clone(of.placed), Took: slices.Clone(of.took)}
	}
	return changed
}

// Unstored is what was counted of each voucher since the first attempt, where that has grown since the last call.
func (t *Tallies) Unstored() map[string]model.Counted {
	t.mu.Lock()
	defer t.mu.Unlock()
	unstored := map[string]model.Counted{}
	for id, of := range t.counted {
		if !of.stored {
			of.stored = true
			unstored[id] = model.Counted{First: of.first.UTC(), Latest: of.latest.UTC(), ByCode: maps.Clone(of.placed)}
		}
	}
	return unstored
}

// Trouble logs a failure and its end once: one is information (a busy machine), a second a warning. Its zero is well.
type Trouble struct {
	mu     sync.Mutex
	first  time.Time // of the failures that are counted; zero: nothing has failed yet
	failed bool      // the latest that was logged is a failure
	warned bool      // and a warning
}

// Note takes the error of the latest try, nil when it went well, and what to log when that is new, with the error.
//
//nolint:sloglint // the callers' texts are constants
func (t *Trouble) Note(ctx context.Context, log *slog.Logger, err error, fails, well string, attrs ...slog.Attr) {
	level, news := t.note(err)
	switch {
	case !news:
	case err != nil:
		log.LogAttrs(ctx, level, fails, append(attrs, slog.Any("error", err))...)
	default:
		log.LogAttrs(ctx, level, well, attrs...)
	}
}

// note reports whether a try's outcome is news, and how much it matters.
func (t *Trouble) note(err error) (level slog.Level, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		news = t.failed
		t.failed, t.warned = false, false
		return slog.LevelInfo, news
	}
	age := time.Since(t.first)
	switch {
	case t.warned, !t.first.IsZero() && age < budget.Brief:
		return level, false
	case t.failed, !t.first.IsZero() && age < budget.Survey:
		t.failed, t.warned = true, true
		return slog.LevelWarn, true
	default:
		t.first, t.failed = time.Now(), true
		return slog.LevelInfo, true
	}
}
