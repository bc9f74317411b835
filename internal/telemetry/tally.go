package telemetry

import (
	"maps"
	"slices"
	"sync"
	"time"

	"seckill/model"
)

// maxTallies bounds the vouchers that are counted by themselves: the metrics tell no voucher, because anybody may name any.
const maxTallies = 64

// Tallies count the attempts to buy each voucher that is in demand. The zero Tallies has counted none.
type Tallies struct {
	mu  sync.Mutex
	all map[string]*tally // by voucher
}

type tally struct {
	latest time.Time
	told   bool // nothing has come since Changed
	placed map[string]uint64
	took   []uint64
}

// Placed counts an attempt. One at a voucher that there is not is none.
func (t *Tallies) Placed(voucherID, outcome string, took time.Duration) {
	if t == nil || outcome == string(model.CodeNotFound) || outcome == string(model.CodeValidation) {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.all[voucherID]
	if of == nil {
		of = t.begin(voucherID)
	}
	of.latest, of.told = now, false
	of.placed[outcome]++
	n, _ := slices.BinarySearch(tallyBounds, took.Seconds())
	of.took[n]++
}

var tallyBounds = model.TallyBounds() //nolint:gochecknoglobals // constant

// begin makes room for another voucher: the one that nobody has asked for longest goes.
func (t *Tallies) begin(voucherID string) *tally {
	if t.all == nil {
		t.all = map[string]*tally{}
	}
	if len(t.all) >= maxTallies {
		oldest := ""
		for id, of := range t.all {
			if oldest == "" || of.latest.Before(t.all[oldest].latest) {
				oldest = id
			}
		}
		delete(t.all, oldest)
	}
	of := &tally{placed: map[string]uint64{}, took: make([]uint64, len(tallyBounds)+1)}
	t.all[voucherID] = of
	return of
}

// Changed are the tallies that have grown since the last call.
func (t *Tallies) Changed() map[string]model.Tally {
	now := time.Now().UTC()
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := map[string]model.Tally{}
	for id, of := range t.all {
		if !of.told {
			of.told = true
			changed[id] = model.Tally{At: now, Placed: maps.Clone(of.placed), Took: slices.Clone(of.took)}
		}
	}
	return changed
}
