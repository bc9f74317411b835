package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// runner runs one row.
type runner struct {
	Options
	env      *environment
	strategy strategy
	number   int
}

// rowBudget bounds each half of a row, so that a bug is a failed row and not a lab that hangs.
const rowBudget = time.Minute

func (r runner) row() Row {
	s := r.strategy
	out := Row{Name: s.name, Group: s.group, Broken: s.broken(), Why: s.why, Cure: s.cure, On: r.env.place(s.on)}
	if !r.env.has(s.on) {
		out.Verdict = VerdictNeedsMySQL
	}
	return out
}

// bounded does one part of a row that can run and has not failed.
func (r runner) bounded(ctx context.Context, out *Row, part func(context.Context, *Row) error) {
	if out.Verdict != "" || out.Err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, rowBudget)
	defer cancel()
	out.Err = part(ctx, out)
}

// setup is the surroundings of a piece of work with a name of its own.
func (r runner) setup(part string) setup {
	return setup{
		terms: terms{Site: r.env.site, Name: fmt.Sprintf("%d-%s", r.number, part), Lease: calmLease, Wait: r.wait},
		db:    r.env.db,
	}
}

// attack forces every interleaving upon the strategy, all at the same time:
// they mostly wait, and each has an account of its own.
func (r runner) attack(ctx context.Context, out *Row) error {
	out.Attacks = make([]Attack, len(r.strategy.attacks))
	group, ctx := errgroup.WithContext(ctx)
	for i, a := range r.strategy.attacks {
		group.Go(func() error {
			found, err := r.attackPatiently(ctx, a, fmt.Sprintf("a%d", i))
			if err != nil {
				return fmt.Errorf("attack %q: %w", a.name, err)
			}
			out.Attacks[i] = Attack{Name: a.name, Finding: found}
			return nil
		})
	}
	err := group.Wait()
	for _, a := range out.Attacks {
		out.merge(a.Finding)
	}
	return err
}

// attackPatiently repeats an attack in which an actor was refused for want of
// time, with longer leases.
func (r runner) attackPatiently(ctx context.Context, a attack, part string) (found Finding, err error) {
	lease := watchedLease
	for n := range watchedLeases {
		var refused int64
		found, refused, err = r.attackOnce(ctx, a, fmt.Sprintf("%s.%d", part, n), lease)
		if err != nil || refused == 0 || a.lapses {
			break
		}
		lease *= 2
	}
	return found, err
}

func (r runner) attackOnce(ctx context.Context, a attack, part string, watched time.Duration) (_ Finding, refused int64, err error) {
	with := r.setup(part)
	found, err := r.onAccount(ctx, with, a.stock, a.lapses, func() (tally, error) {
		arena := &arena{strategy: r.strategy, setup: with, start: newActor, child: r.Spawn.actor, watched: watched}
		defer arena.clear()
		err := a.run(ctx, arena)
		refused = arena.tally.Refused
		return arena.tally, err
	})
	return found, refused, err
}

// free lets two processes work as fast as they can.
func (r runner) free(ctx context.Context, out *Row) error {
	with := r.setup("free")
	count := &commandCount{}
	with.commands = count
	terms := loadTerms{Workers: r.Workers, Operations: r.Operations, Duration: r.Duration, Think: r.Think, Seed: r.Seed}
	newCrew := newLocalCrew
	if r.strategy.processes {
		newCrew = r.Spawn.crew
	}
	var crews []crew
	var total tally
	var took time.Duration
	// Half as many units as buyers, so that the stock runs out under way.
	stock := int64(r.Workers) * int64(r.Operations) / 2
	found, err := r.onAccount(ctx, with, stock, false, func() (tally, error) {
		for _, half := range terms.split() {
			c, err := newCrew(ctx, r.strategy, with, half)
			if err != nil {
				return tally{}, errors.Join(err, closeCrews(crews))
			}
			crews = append(crews, c)
		}
		before := count.sent.Load()
		var err error
		total, took, err = freeRun(ctx, crews)
		out.measure(total, took, count.sent.Load()-before)
		return total, errors.Join(err, closeCrews(crews))
	})
	out.Free = found
	out.merge(found)
	return err
}

// onAccount does work on an account and a stock made for it, and judges it.
func (r runner) onAccount(
	ctx context.Context, with setup, stock int64, lapses bool, work func() (tally, error),
) (_ Finding, err error) {
	book, err := r.strategy.ledger(ctx, with)
	if err != nil {
		return Finding{}, err
	}
	defer func() { err = errors.Join(err, book.close()) }()
	if err := book.open(ctx, stock); err != nil {
		return Finding{}, err
	}
	told, err := work()
	if err != nil {
		return Finding{}, err
	}
	left, err := book.read(ctx)
	if err != nil {
		return Finding{}, err
	}
	return told.judge(stock, left, lapses), nil
}
