package main

import (
	"context"
	"os/exec"
	"slices"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

// shown is what the interleavings of a row come to.
func shown(t *testing.T, name string) Row {
	t.Helper()
	o := Options{Spawn: spawnSelf}
	o.setDefaults()
	e := check.Value(openEnvironment(t.Context(), o))(t)
	defer func() { check.Must(t, e.undo.run(t.Context())) }()
	r := runner{Options: o, env: e, strategy: strategyNamed(name)}
	row := r.row()
	r.bounded(t.Context(), &row, r.attack)
	row.judge(r.strategy)
	return row
}

// TestAttacksTellWhoHadTheLock: a row tells who had the lock and when. Two had a wrong one at once, also in processes of their own;
// a dead holder's time ends with it; of a right one none has it before the other gives it back.
func TestAttacksTellWhoHadTheLock(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		at       string // an attack
		together bool   // two had it at once
		did      string // something that one did
	}{
		{"no lock", "two at once", true, "A has read"},
		{"local mutex, 2 processes", "two at once", true, "B has the lock"},
		{"setnx, no expiry", "crashed holder", false, "A is killed"},
		{"setnx, then expire", "crashed holder", false, "B did not get the lock"},
		{"setnx, no owner check", "late unlock", true, "C has the lock"},
		{"setnx, no watchdog", "work longer than the lease", true, "A is done"},
		{"watchdog, no owner check", "renewed by another", true, "B is killed"},
		{"finally without the lock", "unlocked by who had not locked", true, "B unlocks"},
		{"gives up at once", "asked while it is held", false, "B is refused, and has written nothing"},
		{"redis hash", "two at once", false, "B has the lock"},
		{"redis hash", "crashed holder", false, "A is killed"},
		{"redis hash", "late unlock", false, "A hears that the lock is lost"},
	} {
		t.Run(tc.name+", "+tc.at, func(t *testing.T) {
			t.Parallel()
			row := shown(t, tc.name)
			check.That(t, row.OK(), "%s: %v", row.Verdict, row.Err)
			i := slices.IndexFunc(row.Attacks, func(a Attack) bool { return a.Name == tc.at })
			if i < 0 {
				t.Fatalf("%+v has no such attack", row.Attacks)
			}
			var did []string
			for _, h := range row.Attacks[i].Holds {
				var last time.Duration
				for _, m := range h.Did {
					did = append(did, h.Holder+" "+m.What)
					check.That(t, m.At >= last && m.What != "", "%s: %v after %s", h.Holder, m, last)
					last = m.At
				}
				check.That(t, h.From <= h.To && h.To <= last, "%s held it from %s to %s", h.Holder, h.From, h.To)
			}
			check.That(t, slices.Contains(did, tc.did), "%q are not among them: %q", tc.did, did)
			if tc.did != "A hears that the lock is lost" { // a busy machine may let it write that down later than it was so
				check.Equal(t, "two at once", row.Attacks[i].Together() > 0, tc.together)
			}
		})
	}
}

// TestTogether: what two have is counted once, whoever has it too.
func TestTogether(t *testing.T) {
	t.Parallel()
	at := func(locked bool, from, to time.Duration) Hold { return Hold{Locked: locked, From: from, To: to} }
	for _, tc := range []struct {
		holds []Hold
		want  time.Duration
	}{
		{nil, 0},
		{[]Hold{at(true, 1, 5), at(true, 5, 9)}, 0},
		{[]Hold{at(true, 1, 5), at(false, 2, 9), {}}, 0},
		{[]Hold{at(true, 1, 6), at(true, 4, 9)}, 2},
		{[]Hold{at(true, 3, 6), at(true, 1, 9), at(true, 5, 8)}, 5},
	} {
		check.Equal(t, "together", Attack{Holds: tc.holds}.Together(), tc.want)
	}
}

// TestReadyEndsWithItsServer: nobody waits for one that has ended, also where another one has its port and says nothing.
func TestReadyEndsWithItsServer(t *testing.T) {
	t.Parallel()
	var undo cleanup
	ended, err := undo.start(exec.CommandContext(t.Context(), "false"))
	check.Must(t, err)
	err = ready(t.Context(), "it", ended, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	check.Is(t, "what is heard", err, errServerEnded)
	check.Must(t, undo.run(t.Context()))
}
