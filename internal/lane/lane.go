package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/model"
)

const (
	// sharedAttempts is how often a shared run begins anew without a spoiling key; then each key goes by itself.
	sharedAttempts = 2
	// maxRefused single items may be refused while nothing else of their key is done: the database may lack a column.
	maxRefused = 10
)

// Rules are what a lane must know of its items.
type Rules[In, Out any] struct {
	Key func(In) string
	Run Run[In, Out] // of items of any keys. It may be called again with the same items.
	// Judge tells of an answer whether the item's key is in trouble although the run was well.
	Judge     func(Out) Trouble
	Total     int // runs of isolated keys at once
	Fruitless int // keys in a row that failed by themselves leave the others untried; 0: all are tried
	// Isolated is told once that a key has trouble, and whether it is the only one; Recovered when the last is well.
	Isolated  func(key string, cause error, first bool)
	Recovered func(key string)
}

// Trouble is what the answer to an item says of its key.
type Trouble struct {
	Slow  bool  // its items keep others waiting
	Cause error // it failed; nil: it did not
}

// Lane shares runs between the items of all keys. A key that spoils or delays a run is isolated: it has runs of its
// own, one at a time, ever more rarely while they fail; success returns it to the shared runs. When an error does not
// name the key, each key of the run is isolated, and shows by itself whether it was that one.
//
// Trouble is an error of a run. A *model.HeldError names the key. model.ErrUnknownOutcome answers every item, because
// it may have been done. Any other error says that nothing was done. It is safe for concurrent use.
type Lane[In, Out any] struct {
	rules  Rules[In, Out]
	shared *Group[In, Out]
	own    *Keyed[In, Out]
	keys   isolation

	lateRuns atomic.Int32 // most items need not look further

	mu   sync.Mutex
	late map[string]*lateRun[In, Out] // by key
}

// lateRun is a shared run that takes long. Its keys' later items wait in it, because another run would wait too.
type lateRun[In, Out any] struct {
	first  *Ticket[In, Out] // of the run
	parked []*Ticket[In, Out]
}

// NewLane makes a lane; Close ends it. Options.Writers are those of the shared runs.
func NewLane[In, Out any](rules Rules[In, Out], opts Options) *Lane[In, Out] {
	l := &Lane[In, Out]{rules: rules, late: map[string]*lateRun[In, Out]{}}
	l.keys.keys = map[string]*isolated{}
	l.shared = New(rules.Run, opts)
	l.shared.handle = l.together
	l.shared.slow = l.delayed
	opts.Writers, opts.Total = 1, rules.Total
	l.own = NewKeyed(rules.Key, rules.Run, opts)
	l.own.handle = l.alone
	l.own.rest = func(key string) time.Duration {
		known, _ := l.keys.look(key)
		return known.rest()
	}
	return l
}

// Submit queues items that may share a run. Ctx's end drops an item before its run; its ticket says so, or no room.
func (l *Lane[In, Out]) Submit(ctx context.Context, items ...In) []*Ticket[In, Out] {
	tickets := make([]*Ticket[In, Out], len(items))
	for i, item := range items {
		tickets[i] = newTicket[In, Out](ctx, item)
	}
	if err := l.shared.enter(func() error { l.route(tickets); return nil }); err != nil {
		settle(tickets, nil, err)
	}
	return tickets
}

// Resting is nil unless a key's items are not to be tried now: then ErrResting with the cause. Items still queue.
func (l *Lane[In, Out]) Resting(key string) error {
	known, _ := l.keys.look(key)
	if known.rest() <= 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", ErrResting, key, known.cause)
}

// Isolated reports whether a key has runs of its own.
func (l *Lane[In, Out]) Isolated(key string) bool {
	_, there := l.keys.look(key)
	return there
}

// Troubled reports whether a key has trouble of its own, and is not only suspected of it.
func (l *Lane[In, Out]) Troubled(key string) bool {
	known, _ := l.keys.look(key)
	return known.ill
}

// Close refuses further items, lets the queued ones run, and waits for all. ctx's end cancels the runs.
func (l *Lane[In, Out]) Close(ctx context.Context) {
	l.shared.Close(ctx)
	l.own.Close(ctx)
}

// route queues the tickets of isolated keys by themselves, and the others together.
func (l *Lane[In, Out]) route(tickets []*Ticket[In, Out]) {
	others := l.others(nil, tickets)
	if err := l.shared.join(others...); err != nil {
		settle(others, nil, err)
	}
}

// others are the tickets for a shared run, own the first or nil: not of isolated keys, nor of keys in a late run.
func (l *Lane[In, Out]) others(own *Ticket[In, Out], tickets []*Ticket[In, Out]) (others []*Ticket[In, Out]) {
	if !l.keys.any.Load() && l.lateRuns.Load() == 0 {
		return tickets
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ticket := range tickets {
		key := l.rules.Key(ticket.item)
		if l.Isolated(key) {
			if err := l.own.join(ticket); err != nil {
				ticket.finish(*new(Out), err)
			}
		} else if run := l.late[key]; run != nil && run.first != own {
			run.parked = append(run.parked, ticket)
		} else {
			others = append(others, ticket)
		}
	}
	return others
}

func (l *Lane[In, Out]) delayed(batch []*Ticket[In, Out]) (ended func()) {
	l.lateRuns.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	run := &lateRun[In, Out]{first: batch[0]}
	for _, ticket := range batch {
		if key := l.rules.Key(ticket.item); l.late[key] == nil {
			l.late[key] = run
		}
	}
	return func() {
		l.mu.Lock()
		maps.DeleteFunc(l.late, func(_ string, late *lateRun[In, Out]) bool { return late == run })
		l.mu.Unlock()
		l.lateRuns.Add(-1)
		l.route(run.parked)
	}
}

// together runs the items of all keys but the isolated ones, and begins again without a key that is in trouble.
func (l *Lane[In, Out]) together(ctx context.Context, batch []*Ticket[In, Out]) {
	own := batch[0]
	for attempt := 1; ; attempt++ {
		if batch = l.others(own, batch); len(batch) == 0 {
			return
		}
		key := l.rules.Key(batch[0].item)
		if !slices.ContainsFunc(batch, func(t *Ticket[In, Out]) bool { return l.rules.Key(t.item) != key }) {
			l.attempt(ctx, key, batch)
			return
		}
		answers, err := l.shared.try(ctx, batch)
		if err == nil {
			l.keys.well()
			l.judge(batch, answers)
			settle(batch, answers, nil)
			return
		}
		unknown := errors.Is(err, model.ErrUnknownOutcome)
		held, named := errors.AsType[*model.HeldError](err)
		if named = named && held.VoucherID != "" && !unknown; named {
			l.leave(held.VoucherID, err, false, false)
		}
		if !named || attempt == sharedAttempts {
			for _, ticket := range batch { // until each has shown by itself whether it is well
				l.keys.suspect(l.rules.Key(ticket.item))
			}
		}
		if unknown {
			settle(batch, nil, err)
			return
		}
	}
}

func (l *Lane[In, Out]) judge(batch []*Ticket[In, Out], answers []Out) {
	failed := map[string]bool{}
	for i := range answers {
		trouble, key := l.rules.Judge(answers[i]), l.rules.Key(batch[i].item)
		switch {
		case trouble.Cause != nil && !failed[key]:
			failed[key] = true
			l.leave(key, trouble.Cause, true, false)
		case trouble.Slow:
			l.leave(key, nil, false, false)
		}
	}
}

// leave isolates a key, and tells of its trouble once. Failed: an attempt failed, of which some items may be done.
func (l *Lane[In, Out]) leave(key string, cause error, failed, some bool) {
	news, first := l.keys.leave(key, cause, failed, some)
	if news && l.rules.Isolated != nil {
		l.rules.Isolated(key, cause, first)
	}
}

func (l *Lane[In, Out]) alone(ctx context.Context, batch []*Ticket[In, Out]) {
	key := l.rules.Key(batch[0].item)
	if l.keys.away(key, l.rules.Fruitless) {
		settle(batch, nil, model.Unavailable("What all need is away.", nil))
		return
	}
	l.attempt(ctx, key, batch)
}

func (l *Lane[In, Out]) attempt(ctx context.Context, key string, batch []*Ticket[In, Out]) {
	failures := l.keys.begin(key)
	d := &division[In, Out]{lane: l, began: time.Now(), always: bits.OnesCount(uint(failures)) == 1}
	d.run(ctx, batch)
	switch {
	case d.trouble != nil:
		l.leave(key, d.trouble, true, d.done > 0)
	case d.refused > 0 || d.slow:
		l.leave(key, d.cause, false, false)
		l.keys.ended(key)
	case l.keys.succeeded(key) && l.rules.Recovered != nil:
		l.rules.Recovered(key)
	}
}

// division runs one key's items. It halves refused data to one item, after other trouble at failures 1, 2, 4 and so on.
type division[In, Out any] struct {
	lane    *Lane[In, Out]
	began   time.Time
	always  bool  // it divides after any trouble
	parts   int   // that were divided
	done    int   // items
	refused int   // single items, for their data
	vain    int   // single items, for other reasons
	cause   error // of the latest refusal
	slow    bool
	trouble error // of the key; nil: it is well
}

func (d *division[In, Out]) run(ctx context.Context, batch []*Ticket[In, Out]) {
	answers, err := d.lane.own.try(ctx, batch)
	if err == nil {
		d.judge(answers)
		settle(batch, answers, nil)
		return
	}
	data := errors.Is(err, model.ErrDataRefused)
	_, held := errors.AsType[*model.HeldError](err)
	switch {
	case len(batch) == 1 && data:
		d.refused++
		d.cause = err
	case len(batch) == 1 || held || !data && !d.always || errors.Is(err, model.ErrUnknownOutcome):
		d.vain++
		d.trouble = err
	default:
		if d.parts++; d.parts == 1 && d.always { // the bad ones may all be the first
			batch = slices.Clone(batch)
			rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] }) //nolint:gosec // guards nothing
		}
		d.halves(ctx, batch, err)
		return
	}
	settle(batch, nil, err)
}

// halves runs both halves of items that were refused together. What is not tried any more gets the trouble: later.
func (d *division[In, Out]) halves(ctx context.Context, batch []*Ticket[In, Out], err error) {
	half := len(batch) / 2
	for _, part := range [][]*Ticket[In, Out]{batch[:half], batch[half:]} {
		if d.done == 0 && (d.vain > 1 || d.refused >= maxRefused) || time.Since(d.began) > budget.Look {
			d.trouble = cmp.Or(d.trouble, err)
			settle(part, nil, model.Unavailable("Orders beside this one were refused.",
				fmt.Errorf("%w: %w", ErrResting, d.trouble)))
			continue
		}
		d.run(ctx, part)
	}
}

func (d *division[In, Out]) judge(answers []Out) {
	for i := range answers {
		trouble := d.lane.rules.Judge(answers[i])
		d.slow = d.slow || trouble.Slow
		if trouble.Cause != nil {
			d.trouble = trouble.Cause
		} else {
			d.done++
		}
	}
}

// Halve does something with all items, or with each half where that is too much for the other side, down to one: limits
// need not be known. A single refusal is that item's error. Any other error ends it: the rest would meet it too.
func Halve[T any](items []T, tooMuch func(error) bool, do func(some []T) error) error {
	err := do(items)
	if err == nil || len(items) < 2 || !tooMuch(err) {
		return err
	}
	half := len(items) / 2
	err = Halve(items[:half], tooMuch, do)
	if err != nil && !tooMuch(err) {
		return err
	}
	return errors.Join(err, Halve(items[half:], tooMuch, do))
}

// Undone makes UNAVAILABLE of what had no time or room. The domain's answers, and bugs, stay as they are.
func Undone(detail string, err error) error {
	if _, ok := errors.AsType[*model.Error](err); ok {
		return err
	}
	for _, reason := range []error{ErrFull, ErrClosed, ErrNotRun, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, reason) {
			return model.Unavailable(detail, err)
		}
	}
	return err
}

const (
	// firstPause is before the first retry of a key that failed by itself, whose callers wait. It grows to budget.Call.
	firstPause  = 2 * budget.Blink
	maxIsolated = 1000 // are remembered. Beyond that all are forgotten, and learnt again
)

// ErrResting refuses an item whose key failed a moment ago and is not to be tried now. Nothing was done.
var ErrResting = errors.New("lane: the key failed a moment ago and is not tried now")

// isolation remembers which keys have left the shared runs, and which are in one that takes long.
type isolation struct {
	any atomic.Bool // most items need not look further

	mu        sync.Mutex
	keys      map[string]*isolated
	swept     time.Time
	fruitless int // attempts in a row of keys by themselves in which nothing was done
}

type isolated struct {
	until    time.Time // when it may return
	ill      bool      // it has trouble of its own, which was told
	failures int       // attempts in a row
	next     time.Time // attempt
	busy     bool      // an attempt is under way
	cause    error     // of the latest failure
}

// look is what is known of an isolated key; there is nothing of one that shares runs.
func (i *isolation) look(key string) (known isolated, there bool) {
	if !i.any.Load() {
		return known, false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sweep()
	if found := i.keys[key]; found != nil && (found.busy || time.Now().Before(found.until)) {
		return *found, true
	}
	return known, false
}

// rest is how long a key's next attempt has to wait; zero or less: not at all.
func (k isolated) rest() time.Duration {
	switch {
	case k.failures == 0:
		return 0
	case k.busy:
		return max(time.Until(k.next), firstPause)
	}
	return time.Until(k.next)
}

// suspect gives a key runs of its own until it has shown whether it is well.
func (i *isolation) suspect(key string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.of(key, budget.Look)
}

// of is a key's isolation, which lasts a term at least. The caller holds the lock.
func (i *isolation) of(key string, term time.Duration) *isolated {
	i.sweep()
	known := i.keys[key]
	if known == nil {
		if len(i.keys) >= maxIsolated {
			clear(i.keys)
		}
		known = &isolated{}
		i.keys[key] = known
	}
	if until := time.Now().Add(term); until.After(known.until) {
		known.until = until
	}
	i.any.Store(true)
	return known
}

// leave gives a key in trouble runs of its own. Failed: an attempt at it failed, or only some of it was done. It reports
// whether the trouble is new, and whether it is the only such key.
func (i *isolation) leave(key string, cause error, failed, some bool) (news, first bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.of(key, budget.Step)
	if some {
		known.failures = 0
	}
	if failed {
		i.fruitless++
		known.busy, known.cause = false, cause
		known.next = time.Now().Add(backoff.Doubled(firstPause, budget.Call, known.failures))
		known.failures++
	}
	if some {
		i.fruitless = 0
	}
	if known.ill {
		return false, false
	}
	first = true
	for _, other := range i.keys {
		first = first && !other.ill
	}
	known.ill = true
	return true, first
}

// begin notes that a key is tried by itself, and returns how often in a row that has failed.
func (i *isolation) begin(key string) (failures int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if known := i.keys[key]; known != nil {
		known.busy = true
		failures = known.failures
	}
	return failures
}

// ended notes that an attempt at a key by itself has ended, and did not fail.
func (i *isolation) ended(key string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if known := i.keys[key]; known != nil {
		known.busy, known.failures = false, 0
	}
}

// succeeded notes a good attempt: it ends a suspicion, but not a term after trouble. True: the last key has recovered.
func (i *isolation) succeeded(key string) (recovered bool) {
	if !i.any.Load() {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fruitless = 0
	known := i.keys[key]
	if known == nil {
		return false
	}
	recovered = known.failures > 0
	known.ill = known.ill && !recovered
	known.busy, known.failures, known.cause = false, 0, nil
	if time.Until(known.until) <= budget.Look {
		delete(i.keys, key)
	}
	for _, other := range i.keys {
		recovered = recovered && other.failures == 0
	}
	return recovered
}

// away reports that fruitless keys in a row failed by themselves: all is away, so a suspect key need not be tried.
func (i *isolation) away(key string, fruitless int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.keys[key]
	if fruitless == 0 || i.fruitless < fruitless || known != nil && known.failures > 0 {
		return false
	}
	delete(i.keys, key)
	return true
}

// sweep forgets the keys whose term is over, now and then. The caller holds the lock.
func (i *isolation) sweep() {
	now := time.Now()
	if now.Sub(i.swept) < budget.Look {
		return
	}
	i.swept = now
	maps.DeleteFunc(i.keys, func(_ string, known *isolated) bool { return !known.busy && !now.Before(known.until) })
	if len(i.keys) == 0 {
		i.any.Store(false)
		i.fruitless = 0
	}
}

func (i *isolation) well() {
	if i.any.Load() {
		i.mu.Lock()
		i.fruitless = 0
		i.mu.Unlock()
	}
}
