package lab

import (
	"slices"
	"time"
)

// tally sums up outcomes. It travels from child processes as JSON.
type tally struct {
	Requested int64           `json:"requested"`
	Done      int64           `json:"done"`
	Sold      int64           `json:"sold"`
	SoldOut   int64           `json:"sold_out"`
	Refused   int64           `json:"refused"`
	Stuck     int64           `json:"stuck"`
	Waits     []time.Duration `json:"waits"`
}

func (t *tally) add(o outcome) {
	t.Requested++
	t.Waits = append(t.Waits, o.Waited)
	if o.Sold {
		t.Sold++
	}
	switch o.Result {
	case resultDone:
		t.Done++
	case resultSoldOut:
		t.SoldOut++
	case resultRefused:
		t.Refused++
	case resultStuck:
		t.Stuck++
	}
}

func (t *tally) merge(o tally) {
	t.Requested += o.Requested
	t.Done += o.Done
	t.Sold += o.Sold
	t.SoldOut += o.SoldOut
	t.Refused += o.Refused
	t.Stuck += o.Stuck
	t.Waits = append(t.Waits, o.Waits...)
}

// Finding is what the figures say about one piece of work.
type Finding struct {
	Expected   int64 // the balance, had every worker that was not told otherwise been served
	Actual     int64 // the balance
	Lost       int64 // updates that were reported as done and are not there
	Oversold   int64 // units sold that there never were
	Unsold     int64 // units left although somebody heard "sold out"
	Deadlocked bool  // somebody waited in vain for a lock that nobody alive held
}

// judge compares what workers were told with what is there. A worker that was
// refused has nothing to expect where leases may lapse, and all where they must not.
func (t *tally) judge(stock int64, left figures, lapses bool) Finding {
	expected := t.Requested - t.SoldOut
	if lapses {
		expected -= t.Refused
	}
	f := Finding{
		Expected:   expected,
		Actual:     left.Balance,
		Lost:       max(t.Done-left.Balance, 0),
		Oversold:   max(t.Sold-stock, 0),
		Deadlocked: t.Stuck > 0,
	}
	if t.SoldOut > 0 {
		f.Unsold = left.Remaining
	}
	// Sold units that the stock does not know of would be sold once more.
	f.Lost = max(f.Lost, t.Sold-(stock-left.Remaining))
	return f
}

func (f *Finding) merge(o Finding) {
	f.Expected += o.Expected
	f.Actual += o.Actual
	f.Lost += o.Lost
	f.Oversold += o.Oversold
	f.Unsold += o.Unsold
	f.Deadlocked = f.Deadlocked || o.Deadlocked
}

// clean says that nothing is wrong.
func (f *Finding) clean() bool {
	return f.Expected == f.Actual && f.Lost == 0 && f.Oversold == 0 && f.Unsold == 0 && !f.Deadlocked
}

// shows says that the figures show a defect.
func (f *Finding) shows(d defect) bool {
	switch d {
	case defectLost:
		return f.Lost > 0 && f.Oversold > 0
	case defectDeadlock:
		return f.Deadlocked
	case defectNone:
		return f.clean()
	}
	return false
}

// quantile returns the wait that a share q of all waits does not exceed; 0 when
// there are none. It sorts the waits.
func (t *tally) quantile(q float64) time.Duration {
	if len(t.Waits) == 0 {
		return 0
	}
	slices.Sort(t.Waits)
	return t.Waits[min(int(q*float64(len(t.Waits))), len(t.Waits)-1)]
}
