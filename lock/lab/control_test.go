//part:locks

package main

import (
	"slices"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// TestControl is the negative control of the verdicts: a broken strategy that
// claims to be a real one is found out by its own attack, which mostly is one that
// every lock has to survive, and a real one that claims to be broken as well. No
// verdict hangs on a limit of time: what shows is waited for. And every broken one whose
// defect is mended by hand is broken as expected no more.
func TestControl(t *testing.T) {
	t.Parallel()
	each := []string{"no lock", "setnx, no expiry", "setnx, no owner check", "setnx, no watchdog", "setnx, re-entered"} // one of each attack
	for _, s := range catalog() {
		if !s.broken() || s.on == onMySQL || !check.Faults && !slices.Contains(each, s.name) {
			continue
		}
		t.Run(s.name+", said to be real", func(t *testing.T) {
			t.Parallel()
			liar := s
			liar.defect, liar.group = defectNone, groupLock
			row := run(t, Options{rows: []strategy{liar}, wait: deadLeases * watchedLease, patience: check.Deadline}).Rows[0]
			if row.Verdict != VerdictDefect || row.OK() {
				t.Errorf("%s, want %s", row.Verdict, VerdictDefect)
			}
		})
	}
	for _, s := range catalogOf(true) {
		if !s.broken() {
			continue
		}
		t.Run(s.name+", mended", func(t *testing.T) {
			t.Parallel()
			o := Options{rows: []strategy{s}}
			if s.on == onMySQL {
				o.DSN = testserver.Schema(t)
			}
			row := run(t, o).Rows[0]
			if row.Verdict != VerdictHidden || row.OK() {
				t.Errorf("%s: %v, want %s", row.Verdict, row.Err, VerdictHidden)
			}
		})
	}
	t.Run("real, said to be broken", func(t *testing.T) {
		t.Parallel()
		liar := strategyNamed("redis hash")
		liar.defect, liar.attacks = defectDeadlock, []attack{crash(pointRead), reenter()}
		row := run(t, Options{rows: []strategy{liar}, wait: check.Deadline}).Rows[0]
		if row.Verdict != VerdictHidden || row.OK() {
			t.Errorf("%s, want %s", row.Verdict, VerdictHidden)
		}
	})
	t.Run("cannot run", func(t *testing.T) {
		t.Parallel()
		liar := strategyNamed("setnx, no expiry")
		liar.name = "not in the catalog" // which the child is to find
		row := run(t, Options{rows: []strategy{liar}}).Rows[0]
		if row.Verdict != VerdictFailed || row.OK() || row.Err == nil {
			t.Errorf("%s: %v, want %s", row.Verdict, row.Err, VerdictFailed)
		}
	})
}
