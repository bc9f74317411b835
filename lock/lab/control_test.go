//part:locks

package main

import (
	"slices"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// TestControl is the negative control of the verdicts: a broken strategy that claims to be a real one is found out by
// its own attack, which mostly is one that every lock has to survive, and a real one that claims to be broken as well.
// No verdict hangs on a limit of time: what shows is waited for. And every broken one whose defect is mended by hand is
// broken as expected no more.
func TestControl(t *testing.T) {
	t.Parallel()
	wants := func(name string, s strategy, o options, want Verdict) {
		t.Run(s.Name+", "+name, func(t *testing.T) {
			t.Parallel()
			o.rows = []strategy{s}
			if s.on == onMySQL {
				o.dsn = testserver.Schema(t)
			}
			row := run(t, o).Rows[0]
			check.That(t, row.Verdict == want && !row.OK(), "%s: %v, want %s", row.Verdict, row.Err, want)
		})
	}
	each := []string{"no lock", "setnx, no expiry", "setnx, no owner check", "setnx, no watchdog", "setnx, re-entered"} // one of each attack
	for _, s := range catalog() {
		if s.broken() && s.on != onMySQL && (check.Faults || slices.Contains(each, s.Name)) {
			s.defect, s.group = defectNone, groupLock
			wants("said to be real", s, options{wait: deadLeases * watchedLease, patience: check.Deadline}, VerdictDefect)
		}
	}
	for _, s := range mended() {
		wants("mended", s, options{}, VerdictHidden)
	}
	liar, _ := named(catalog(), "redis hash")
	liar.defect, liar.attacks = defectDeadlock, []attack{crash(pointRead), reenter()}
	wants("said to be broken", liar, options{wait: check.Deadline}, VerdictHidden)
	liar, _ = named(catalog(), "setnx, no expiry")
	liar.Name = "not in the catalog" // which the child is to find
	wants("cannot run", liar, options{}, VerdictFailed)
}
