package failpoint_test

import (
	"slices"
	"strings"
	"testing"

	"seckill/internal/failpoint"
)

// kind says what a name means that changes something outside the process.
type kind int

const (
	ofAnInterface kind = iota + 1 // a method that the service asks of another layer
	ofTheRoad                     // a function or method of ours that makes such calls
)

// changing names what changes something outside the process.
var changing = map[string]kind{
	"Reserve": ofAnInterface, "Publish": ofAnInterface, "Confirm": ofAnInterface,
	"Persist": ofAnInterface, "CreateOrders": ofAnInterface, "Fail": ofAnInterface, "Bury": ofAnInterface,
	"Settle": ofAnInterface, "Release": ofAnInterface, "Touch": ofAnInterface,
	"Cancel": ofAnInterface, "Done": ofAnInterface, "DoneOrders": ofAnInterface,
	"Close": ofAnInterface, "SetBarrier": ofAnInterface, "Progress": ofAnInterface,
	"Load": ofAnInterface, "Open": ofAnInterface, "Abandon": ofAnInterface, "Retire": ofAnInterface,
	"IntendStock": ofAnInterface, "DropIntent": ofAnInterface, "Lower": ofAnInterface, "ChangeStock": ofAnInterface,
	"Patch": ofAnInterface, "Apply": ofAnInterface, "Create": ofAnInterface,
	"BeginSwitch": ofAnInterface, "FinishSwitch": ofAnInterface, "RemoveDeadLetter": ofAnInterface,

	"insert": ofTheRoad, "Ack": ofTheRoad, "undo": ofTheRoad, "close": ofTheRoad, "lower": ofTheRoad, "load": ofTheRoad, "chunk": ofTheRoad, "confirm": ofTheRoad,
}

// harmless are the other methods of the service's interfaces: they read, or
// change nothing that an order depends on.
var harmless = strings.Fields(`
	After Announce Audit Backlog BacklogOf Buried Buyers ByUsername Context DeadLetter DeadLetters Demand Detail Due Each EachProcessing Find Found Get GetMany
	Hash Incarnation Intents Kept Known List Live Lock Marks OrderOf OrdersOf Pending Pendings Processing Quiet Read Rebuild Replace Request Selling Snapshot Stats Unlock Verify
	Voucher Watch Watched buyers copies views`)

// roads are the functions that an order, or a unit, passes one after the other.
var roads = map[string][]string{
	"accepted": {"service/admission.go reserve", "service/admission.go publish"},
	"persisted": {
		"service/persist.go Persist", "service/persist_batch.go commit", "repository/order_create.go attempt", "service/persist.go buryOne",
		"service/settle.go settle", "queue/consume.go settle", "queue/consume.go handle",
	},
	"canceled":  {"service/cancel.go Cancel", "service/cancel.go returnUnit"},
	"relayed":   {"service/relay.go apply", "service/relay.go note"},
	"republish": {"service/overdue.go republish"},
	"rebuilt":   {"service/rebuild_steps.go begin", "service/rebuild_steps.go steps"},
	"lowered":   {"service/voucher_stock.go changeStock"},
}

// together are calls between which no process needs to die, and why.
var together = map[string]string{
	"Cancel, Cancel":           "the second is for an order that was persisted behind the first, which changed nothing",
	"Settle, close":            "they are of different orders: settled ones and closed ones",
	"chunk, load":              "the first only shows that a rebuild is under way",
	"ChangeStock, IntendStock": "the first is sync mode's, which has no copy",
	"Publish, undo":            "the second is a defect that only tests ask for",
}

// elsewhere are functions off the roads that change something, and why no step
// of their own is wanted there.
var elsewhere = map[string]string{
	"service/confirm.go confirm":     "between the steps of publish",
	"service/admission.go undo":      "a defect that only tests ask for",
	"service/settle_closed.go close": "between the steps of settle",
	"service/settle_closed.go undo":  "between the steps of settle and of the relay",
	"service/rebuild_load.go chunk":  "between the steps of a rebuild",
	"service/rebuild_steps.go beat":  "only shows that a rebuild is under way",
	"service/voucher_stock.go lower": "between the steps of a stock that shrinks",

	"service/admission_refusal.go marked": "does what the relay does, for a buyer whose request comes before it",
	"service/audit_repair.go repairEach":  "does what the reconciler does, when an operator asks for it",
	"service/relay.go retire":             "before the step that notes it, and repeated until then",
	"service/reconcile_watch.go apply":    "repeated until the copy has the row's revision",
	"service/voucher_stock.go apply":      "the reconciler does it if this does not",
	"service/voucher_stock.go restore":    "repeated until the intent is gone",
	"service/voucher.go Create":           "a voucher without a copy is loaded by the reconciler",
	"service/voucher.go Patch":            "one transaction; the reconciler applies what the copy lacks",
	"service/account.go create":           "no order depends on it",
	"service/order_commit.go create":      "sync mode: one transaction, or one a voucher, between the steps of persisting",

	// Commands of an operator, who sees what became of them and repeats them.
	"service/replay.go Replay":        "the letter goes last: until then it can be replayed again",
	"service/replay.go reserve":       "a reservation as any other: the reconciler publishes it",
	"service/replay.go confirm":       "it only looks whether the copy is open",
	"service/replay.go publish":       "a reservation as any other: the reconciler publishes it",
	"service/mode_switch.go Switch":   "nothing is sold until the last step, and all of them can be repeated",
	"service/mode_switch.go closeAll": "nothing is sold until the last step, and all of them can be repeated",
	"service/mode_switch.go rescue":   "nothing is sold until the last step, and all of them can be repeated",
}

func TestEveryStepIsReachedOnce(t *testing.T) {
	t.Parallel()
	known := constants(t)
	listed := map[string]bool{}
	for _, step := range failpoint.Steps() {
		if listed[string(step)] {
			t.Errorf("%s is listed twice", step)
		}
		listed[string(step)] = true
	}
	times := map[string]int{}
	s := read(t)
	for name := range s.functions {
		for _, e := range s.events(name) {
			if e.step == "" {
				continue
			}
			if times[e.step]++; known[e.step] == "" {
				t.Errorf("%s: %s is no step", e.at, e.step)
			}
		}
	}
	for name, value := range known {
		if !listed[value] {
			t.Errorf("Steps() does not list %s", name)
		}
		if times[name] != 1 {
			t.Errorf("%s is reached at %d places, want 1", name, times[name])
		}
	}
	if len(listed) != len(known) {
		t.Errorf("%d steps are listed, %d are named", len(listed), len(known))
	}
}

// Between any two calls of a road that change something stands a step: a process
// can be killed there. (Before the first and behind the last there need be none:
// nothing has happened yet, or everything.)
func TestStepsStandBetweenAnyTwoChanges(t *testing.T) {
	t.Parallel()
	s := read(t)
	for road, functions := range roads {
		before := ""
		for _, name := range functions {
			if len(s.functions[name]) == 0 {
				t.Errorf("the road %q: there is no function %s", road, name)
				continue
			}
			for _, e := range s.events(name) {
				if e.step != "" {
					before = ""
					continue
				}
				if _, fine := together[before+", "+e.call]; before != "" && !fine {
					t.Errorf("%s: no step stands between %s and %s", e.at, before, e.call)
				}
				before = e.call
			}
		}
	}
}

// What changes something stands on a road, or says why not: a new call makes its author
// decide where the program has to survive being killed.
func TestEveryChangeStandsOnARoad(t *testing.T) {
	t.Parallel()
	s := read(t)
	for name := range s.methods {
		if changing[name] == 0 && !slices.Contains(harmless, name) {
			t.Errorf("the service's interfaces have a method %s: is it changing or harmless?", name)
		}
	}
	var onRoads []string
	for _, functions := range roads {
		onRoads = append(onRoads, functions...)
	}
	used := map[string]bool{}
	for name := range s.functions {
		if !strings.HasPrefix(name, "service/") || slices.Contains(onRoads, name) {
			continue
		}
		for _, e := range s.events(name) {
			if e.step != "" || changing[e.call] == ofTheRoad {
				continue
			}
			if used[name] = true; elsewhere[name] == "" {
				t.Errorf("%s: %s changes something in %q, which is on no road", e.at, e.call, name)
			}
		}
	}
	for name := range elsewhere {
		if !used[name] {
			t.Errorf("nothing is changed in %q any more", name)
		}
	}
}
