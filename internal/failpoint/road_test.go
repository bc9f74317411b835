package failpoint_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

type kind int

const (
	ofAnInterface kind = iota + 1 // a method that the service asks of another layer
	ofTheRoad                     // a function or method of ours that makes such calls
)

var changing = map[string]kind{
	"Reserve": ofAnInterface, "Publish": ofAnInterface, "Confirm": ofAnInterface,
	"Persist": ofAnInterface, "CreateOrders": ofAnInterface, "Fail": ofAnInterface, "Bury": ofAnInterface,
	"Settle": ofAnInterface, "Mend": ofAnInterface, "Release": ofAnInterface, "ReleaseAll": ofAnInterface, "Touch": ofAnInterface,
	"Cancel": ofAnInterface, "Done": ofAnInterface, "DoneOrders": ofAnInterface,
	"Close": ofAnInterface, "SetBarrier": ofAnInterface, "Progress": ofAnInterface,
	"Load": ofAnInterface, "LoadCooling": ofAnInterface, "Open": ofAnInterface, "Abandon": ofAnInterface, "Retire": ofAnInterface,
	"IntendStock": ofAnInterface, "DropIntent": ofAnInterface, "Lower": ofAnInterface, "ChangeStock": ofAnInterface,
	"Join": ofAnInterface, "Leave": ofAnInterface, "Relay": ofTheRoad,
	"Patch": ofAnInterface, "Apply": ofAnInterface, "Create": ofAnInterface, "Change": ofAnInterface,
	"Forget": ofAnInterface, "Expire": ofAnInterface, "Ask": ofAnInterface, "Redeem": ofAnInterface, "Unredeem": ofAnInterface, "Request": ofAnInterface, "Withdraw": ofAnInterface, "Elsewhere": ofAnInterface, "PaidBack": ofAnInterface,
	"Start": ofAnInterface, "SetURL": ofAnInterface, "Postpone": ofAnInterface,
	"Refund": ofAnInterface, "Retry": ofAnInterface, "GiveUp": ofAnInterface,
	"Enter": ofAnInterface, "SetRoot": ofAnInterface, "Serve": ofAnInterface,
	"RemoveDeadLetter": ofAnInterface, "Erase": ofAnInterface, "Line": ofAnInterface, "Advance": ofAnInterface,

	"Released": ofTheRoad, "insert": ofTheRoad, "Ack": ofTheRoad, "isolate": ofTheRoad, "undo": ofTheRoad, "close": ofTheRoad, "lower": ofTheRoad, "load": ofTheRoad, "chunk": ofTheRoad, "confirm": ofTheRoad,
}

// harmless are the other methods of the service's interfaces: they read, or change nothing that an order depends on.
var harmless = strings.Fields(`
	Administrators After Announce Await Audit Backlog BacklogOf PendingOf Buried Buyers ByID ByUsername Changed Counts Created DeadLetter Detail Due Each EachProcessing Empty Entries Events Failed Find ForceUnlock Get GetMany Hash Held Holder
	IDs Incarnation Intents Kept Known Lapse List Live LookUp Marks Node OrderOf OrdersOf Overdue Patched Pending Place Pendings Places Processing Proof PurgeAccounts PurgeIdempotency PurgeMessages Quiet Read Rebuild Record Refusal Report Search Selling Shelf Since ShowMany Snapshot Sold Started Stats Take Takings Verify
	Waited Waiting Waitlists Watch Watched Younger buyers cancel detail drain free get locksItself open overload query
	sell sold stats`)

// roads are the functions that an order, or a unit, passes one after the other.
var roads = map[string][]string{
	"accepted": {"service/sale/order_async.go reserveGroup", "service/sale/order_async.go publishGroup"},
	"persisted": {
		"service/persist/persist.go Persist", "service/persist/persist.go commit", "repository/order_create.go attempt",
		"service/persist/settle.go buryOne", "service/persist/settle.go Tell", "queue/deadletter.go moveAll",
		"queue/consume.go settle", "queue/consume.go handle",
	},
	"canceled":  {"service/sale/order_query.go end", "service/sale/order.go commit", "service/sale/order.go do", "service/sale/order_async_query.go returnUnit", "service/sale/order_async_query.go giveBack"},
	"expired":   {"service/repair/expiry.go ask", "service/repair/expiry.go expireBatch"},
	"drawn":     {"service/repair/draw.go draw", "service/repair/draw.go order", "service/repair/draw.go serve"},
	"published": {"service/repair/outbox.go relay"},
	"paid":      {"service/payment.go begin", "service/payment.go settle"},
	"refunded":  {"service/payment.go refund"},
	"relayed":   {"service/repair/outbox.go give", "service/repair/outbox.go note"},
	"republish": {"service/repair/stock.go republish"},
	"rebuilt":   {"service/repair/rebuild_job.go begin", "service/repair/rebuild_job.go steps"},
	"lowered":   {"service/repair/stock.go change"},
}

// together are calls between which no process needs to die, and why.
var together = map[string]string{
	"Cancel, Cancel":   "the second is for one order after the other when the first, for all of them, was refused and changed nothing",
	"isolate, Publish": "they are of different orders, whose messages are acknowledged behind both",
	"Settle, close":    "they are of different orders: settled ones and closed ones",
	"Relay, Released":  "one or the other, by whether the call knows the heir",
	"Done, GiveUp":     "an attempt has one of these ends",
	"GiveUp, Retry":    "an attempt has one of these ends",
	"chunk, load":      "the first only shows that a rebuild is under way",
}

// elsewhere are functions off the roads that change something, and why no step of their own is wanted there.
var elsewhere = map[string]string{
	"service/person.go Erase":             "repeated by who asked for it, and goes on",
	"service/sale/order_async.go confirm": "between the steps of publishGroup",
	"service/persist/settle.go close":     "between the steps of settle",
	"service/persist/settle.go undo":      "between the steps of settle and of the outbox",
	"service/repair/rebuild_job.go chunk": "between the steps of a rebuild",
	"service/repair/rebuild_job.go load":  "between the steps of a rebuild",
	"service/repair/rebuild_job.go beat":  "only shows that a rebuild is under way",
	"service/repair/stock.go lower":       "between the steps of a stock that shrinks",
	"service/sale/order_async.go marked":  "does what the outbox does, for a buyer who asks before it",
	"service/repair/audit.go repairEach":  "does what the reconciler does, when an operator asks for it",
	"service/repair/reconcile.go Drop":    "one step: the letter goes, or stays",
	"service/repair/outbox.go retire":     "before the step that notes it, and repeated until then",
	"service/repair/outbox.go Run":        "events get their positions, or go, in one transaction, and are looked for again",
	"service/repair/stock.go noteAll":     "repeated until every reservation is noted as due",
	"service/repair/stock.go clear":       "repeated until no note is without a reservation",
	"service/repair/rebuild.go refresh":   "the reconciler repeats it until the hot copy has the row's revision",
	"service/repair/stock.go restore":     "repeated until the intent is gone",
	"service/sale/order.go newOrders":     "one transaction each: who repeats a call hears of the same place",
	"service/sale/waitlist.go Leave":      "one transaction, as of newOrders",
	"service/sale/order_sync.go commit":   "one transaction, whose locks end with their leases: who repeats the call hears of the same order",
	"service/voucher.go Create":           "a voucher without a hot copy is loaded by the reconciler",
	"service/voucher.go Patch":            "one transaction; the reconciler applies what the hot copy lacks",
	"service/voucher.go ChangeStock":      "the road of a stock that shrinks begins in Change",
	"service/voucher.go Change":           "sync mode: one transaction",
	"service/order.go Redeem":             "one transaction: who repeats the call hears that the order is redeemed",
	"service/order.go Unredeem":           "one transaction: who repeats the call hears that the order is paid",
	"service/order.go Request":            "one transaction; the refund is a row that is worked off",
	"service/order.go Withdraw":           "one transaction, as of Request: who repeats the call hears the same",
	"service/order.go PaidBack":           "one transaction, as of Withdraw",
	"service/payment.go Elsewhere":        "one transaction, as of Withdraw",
	"service/payment.go reconcile":        "only puts off the next question",
	"service/account.go create":           "no order depends on it",
	"service/account.go ChangePassword":   "no order depends on it",
	"service/account.go SignOut":          "no order depends on it",
	"service/account.go Invite":           "no order depends on it",
	"service/account.go Accept":           "no order depends on it",
	"service/account.go SetGroups":        "no order depends on it",
	"service/account.go change":           "no order depends on it",
	"service/report.go Share":             "no order depends on it",

	// Commands of an operator, who sees what became of them and repeats them.
	"service/repair/reconcile.go Replay":  "the letter goes last: until then it can be replayed again",
	"service/repair/reconcile.go reserve": "a reservation as any other: the reconciler publishes it",
	"service/repair/reconcile.go confirm": "it only looks whether the hot copy is open",
	"service/repair/reconcile.go publish": "a reservation as any other: the reconciler publishes it",
	"service/repair/election.go Do":       "nobody sells, and a hot copy that is closed too early is rebuilt",
}

func TestEveryStepIsReachedOnce(t *testing.T) {
	t.Parallel()
	known, times, s := steps(t), map[string]int{}, read(t)
	for name := range s.functions {
		for _, e := range s.events(name) {
			if e.step == "" {
				continue
			}
			times[e.step]++
			check.That(t, known[e.step] != "", "%s: %s is no step", e.at, e.step)
		}
	}
	check.That(t, len(known) > 50, "%d steps are named", len(known))
	for name := range known {
		check.Equal(t, "places at which "+name+" is reached", times[name], 1)
	}
}

// Between two changing calls of a road (at its ends nothing, or all, has happened) stands a step, for a kill.
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
				_, fine := together[before+", "+e.call]
				check.That(t, before == "" || fine, "%s: no step stands between %s and %s", e.at, before, e.call)
				before = e.call
			}
		}
	}
}

// What changes something stands on a road or says why not: so its author decides where a kill must be survived.
func TestEveryChangeStandsOnARoad(t *testing.T) {
	t.Parallel()
	s := read(t)
	for name := range s.methods {
		check.That(t, changing[name] != 0 || slices.Contains(harmless, name),
			"the service's interfaces have a method %s: is it changing or harmless?", name)
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
		check.That(t, used[name], "nothing is changed in %q any more", name)
	}
}

// event is a boundary on the road, or a call that changes something outside the process.
type event struct {
	step string // name of the constant; empty: a call
	call string // name of the method
	at   token.Position
}

type source struct {
	root      string
	files     []string
	positions *token.FileSet
	functions map[string][]*ast.FuncDecl // methods of several types may share a name
	methods   map[string]bool            // of the interfaces that the service declares
}

func read(t *testing.T) *source {
	t.Helper()
	s := &source{
		root: check.Value(filepath.Abs("../.."))(t), positions: token.NewFileSet(),
		functions: map[string][]*ast.FuncDecl{}, methods: map[string]bool{},
	}
	check.Must(t, fs.WalkDir(os.DirFS(s.root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasPrefix(path, "internal/failpoint/") {
			return err
		}
		s.files = append(s.files, path)
		return s.parse(path)
	}))
	return s
}

func (s *source) text(t *testing.T, path string) string {
	t.Helper()
	return string(check.Value(os.ReadFile(filepath.Join(s.root, path)))(t))
}

func (s *source) parse(path string) error {
	tree, err := parser.ParseFile(s.positions, filepath.Join(s.root, path), nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(tree, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			name := path + " " + node.Name.Name
			s.functions[name] = append(s.functions[name], node)
		case *ast.InterfaceType:
			if strings.HasPrefix(path, "service/") {
				for _, method := range node.Methods.List {
					for _, name := range method.Names {
						s.methods[name.Name] = true
					}
				}
			}
		}
		return true
	})
	return nil
}

func (s *source) events(name string) []event {
	var events []event
	for _, function := range s.functions[name] {
		ast.Inspect(function, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			at := s.positions.Position(call.Pos())
			if step, ok := reached(call); ok {
				events = append(events, event{step: step, at: at})
			} else if name, ok := outward(call); ok {
				events = append(events, event{call: name, at: at})
			}
			for _, handed := range call.Args { // a method that is handed on to be called
				if method, ok := handed.(*ast.SelectorExpr); ok && changing[method.Sel.Name] == ofAnInterface {
					events = append(events, event{call: method.Sel.Name, at: at})
				}
			}
			return true
		})
	}
	return events
}

func reached(call *ast.CallExpr) (step string, ok bool) {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || function.Sel.Name != "Reach" || len(call.Args) != 1 {
		return "", false
	}
	constant, ok := call.Args[0].(*ast.SelectorExpr)
	if !ok {
		return "a step that is no constant", true
	}
	return constant.Sel.Name, true
}

func outward(call *ast.CallExpr) (name string, ok bool) {
	switch function := call.Fun.(type) {
	case *ast.Ident: // a function of the same package
		return function.Name, changing[function.Name] == ofTheRoad
	case *ast.SelectorExpr:
		switch name := function.Sel.Name; changing[name] {
		case ofTheRoad:
			return name, true
		case ofAnInterface:
			// A call to others takes a context and something to do; ctx.Done() and Close(ctx) do not.
			first, isName := argument(call, 0).(*ast.Ident)
			return name, isName && strings.HasSuffix(strings.ToLower(first.Name), "ctx") && len(call.Args) > 1
		}
	}
	return "", false
}

func argument(call *ast.CallExpr, n int) ast.Expr {
	if n >= len(call.Args) {
		return nil
	}
	return call.Args[n]
}

func steps(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	text := string(check.Value(os.ReadFile("failpoint.go"))(t))
	for _, match := range regexp.MustCompile(`(?m)^\t(\w+) +Step = "([a-z-]+)"`).FindAllStringSubmatch(text, -1) {
		all[match[1]] = match[2]
	}
	return all
}

func TestMain(m *testing.M) { testserver.Main(m) }

// obeyed is the name by which a program would kill itself.
const obeyed = "SECKILL_FAILPOINT"

// Only the tag compiles what obeys; without it Reach does nothing. (The faults look at the binaries themselves.)
func TestOnlyTheTagMakesAProgramObey(t *testing.T) {
	t.Parallel()
	s := read(t)
	plain, tagged := build.Default, build.Default
	plain.BuildTags, tagged.BuildTags = nil, []string{"failpoint"}
	obeys := false
	for _, path := range append(s.files, "internal/failpoint/off.go", "internal/failpoint/on.go") {
		if !strings.Contains(s.text(t, path), obeyed) {
			continue
		}
		dir, file := filepath.Split(filepath.Join(s.root, path))
		check.That(t, !check.Value(plain.MatchFile(dir, file))(t),
			"the shipped program has %s, which names %s", path, obeyed)
		obeys = obeys || check.Value(tagged.MatchFile(dir, file))(t)
	}
	check.Equal(t, "whether the program of the tests obeys "+obeyed, obeys, true)

	off := check.Value(parser.ParseFile(token.NewFileSet(), "off.go", nil, parser.SkipObjectResolution))(t)
	for _, declaration := range off.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.Name.Name == "Reach" {
			check.Equal(t, "statements of Reach without the tag", len(function.Body.List), 0)
			return
		}
	}
	t.Error("there is no Reach without the tag")
}
