package lab

import (
	"testing"
	"time"
)

// TestControl is the negative control of the verdicts: a broken strategy that
// claims to be a real one is found out, by its own attack and by those that
// every lock has to survive, and a real one that claims to be broken as well.
func TestControl(t *testing.T) {
	t.Parallel()
	for _, s := range catalog() {
		if !s.broken() || s.on == onMySQL {
			continue
		}
		t.Run(s.name+", said to be real", func(t *testing.T) {
			t.Parallel()
			liar := s
			liar.defect, liar.group = defectNone, groupLock
			rows := []strategy{liar}
			if s.defect == defectLost && s.name != "setnx, GET then DEL" { // which only breaks at its own point
				liar.attacks = []attack{overlap(), staleUnlock(pointWritten), outlive()}
				rows = append(rows, liar)
			}
			for _, row := range run(t, Options{rows: rows, wait: 4 * time.Second}).Rows {
				if row.Verdict != VerdictDefect || row.OK() {
					t.Errorf("%s, want %s", row.Verdict, VerdictDefect)
				}
			}
		})
	}
	t.Run("real, said to be broken", func(t *testing.T) {
		t.Parallel()
		liar := strategyNamed("redis hash")
		liar.defect, liar.attacks = defectDeadlock, []attack{crash(pointRead), reenter()}
		row := run(t, Options{rows: []strategy{liar}}).Rows[0]
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
