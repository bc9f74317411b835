//part:kills
//part:mysql8

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/failpoint"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// fatality is a process that dies at a step, with a voucher of its own, and what it leaves behind.
type fatality struct {
	*lane

	step    failpoint.Step
	voucher model.Voucher
	before  model.Order // made before, by a process that was well
	waits   model.Order // made and canceled before

	promised map[string]string // of every process, with their users
	canceled string            // the order that is to be canceled, or to expire
	expires  bool              // it expires
	line     []string          // who waits for the unit, in their order

	hindrance string // a trigger that keeps the voucher's orders out of the database until somebody is well
}

// lane is a deployment whose program dies at one step after the other. Nobody waits in between until what a dead
// process left behind is settled: the next ones meet it, and one that is well settles everything in the end.
type lane struct {
	s       settings
	redis   *redis.Client
	leases  []string // the keys by which a reconciler and others of whom there is one are known to be at work
	program *process
	dead    []*fatality
	users   int // so many have been seen

	mu     sync.Mutex
	beside map[string]map[string]string // other vouchers, with the orders that were promised and their users
}

// user is one nobody has seen before.
func (l *lane) user() string {
	l.users++
	return l.program.user(l.users)
}

// drive asks a process for what leads it to its step.
type drive func(t *testing.T, f *fatality)

// stop is a step, and what leads to it.
type stop struct {
	step  failpoint.Step
	drive drive
}

func stops(drive drive, steps ...failpoint.Step) (all []stop) {
	for _, step := range steps {
		all = append(all, stop{step, drive})
	}
	return all
}

// lanes are the steps in an order in which each process finds what the earlier ones left.
func lanes() map[string][]stop {
	return map[string][]stop{
		"accepted": slices.Concat(
			stops(buyOne, failpoint.BeforeReserve, failpoint.BeforePublish, failpoint.AfterPublish, failpoint.BeforeAnswer, failpoint.AfterReserve),
			stops(waitForIt, failpoint.BeforeRepublish, failpoint.AfterRepublish), // reservations that were never published are there
		),
		"persisted": slices.Concat(
			stops(buyOne,
				failpoint.BeforePersist, failpoint.BeforeInsert, failpoint.AfterInsert, failpoint.BeforeCommit, failpoint.AfterCommit,
				failpoint.BeforeSettle, failpoint.AfterSettle, failpoint.BeforeAck, failpoint.AfterAck, failpoint.AfterEventsPublished),
			stops(hinderOne, failpoint.BeforeMove, failpoint.AfterMove),
			stops(poisonOne, failpoint.BeforeDeadLetter, failpoint.AfterDeadLetter),
		),
		"returned": slices.Concat(
			stops(cancelOne, failpoint.BeforeCancel, failpoint.AfterReturn, failpoint.AfterReturnNoted, failpoint.AfterCancel),
			stops(waitForIt, failpoint.BeforeRelease, failpoint.AfterRelease, failpoint.AfterReleaseNoted), // an outbox row is there
			stops(expireOne, failpoint.BeforeExpire, failpoint.AfterExpire),
		),
		"rebuilt": slices.Concat(
			stops(rebuildIt, failpoint.AfterCloseDatabase, failpoint.AfterCloseCopy, failpoint.AfterBarrier, failpoint.AfterLoad,
				failpoint.AfterOpenDatabase, failpoint.AfterOpenCopy),
			stops(lowerStock, failpoint.AfterIntent, failpoint.AfterLowerCopy, failpoint.AfterStockChange),
		),
	}
}

// The real program is killed with SIGKILL, by itself, at every step of an order's road, and what it leaves behind is
// settled by the next ones.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	led := slices.Concat(moneySteps(), entrySteps(), drawSteps()) // TestKilledWithMoneyUnderWay, TestKilledInADraw
	for _, way := range comebacks() {
		led = append(led, way.steps...) // TestKilledWhereUsersWait
	}
	for _, stops := range lanes() {
		for _, s := range stops {
			led = append(led, s.step)
		}
	}
	for _, step := range failpoint.Steps() {
		check.That(t, slices.Contains(led, step), "nothing leads to the step %s", step)
	}
	testserver.Program(t, "failpoint")
	for name, stops := range lanes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killed(t, stops, 0)
		})
	}
	if !check.Faults {
		return
	}
	for _, vouchers := range []int{10, 100} { // which share calls, messages and transactions
		for _, name := range []string{"accepted", "persisted"} {
			t.Run(fmt.Sprintf("%s, %d vouchers", name, vouchers), func(t *testing.T) {
				t.Parallel()
				killed(t, lanes()[name], vouchers-1)
			})
		}
	}
}

func killed(t *testing.T, stops []stop, beside int) {
	t.Helper()
	s := asyncOnServers(t).with(settings{"SECKILL_EVENTS": newStream()})
	l := &lane{s: s, beside: map[string]map[string]string{}, program: prepare(t, testserver.Program(t, "failpoint"), s)}
	l.redis = redis.NewClient(check.Value(redis.ParseURL(s["SECKILL_REDIS_URL"]))(t))
	t.Cleanup(func() { _ = l.redis.Close() })
	l.begin(t, stops, beside)
	for _, part := range []string{"reconciler", "expiry", "events"} {
		l.leases = append(l.leases, "seckill:"+part+":"+deploymentOf(t, s))
	}
	for n, stop := range stops {
		l.dead[n].dies(t, stop.drive)
	}
	l.lapse(t)
	well := start(t, s)
	well.Groups = []string{earlyGroup}
	for n, f := range l.dead {
		f.settles(t, well)
		well.sellsOn(t, f.voucher.ID, 10_000*(n+1))
	}
	for id, promised := range l.beside {
		well.kept(t, id, promised)
	}
	l.heard(t)
}

// lapse ends the leases of a dead process, which takes some seconds when nobody helps.
func (l *lane) lapse(t *testing.T) {
	t.Helper()
	check.Must(t, l.redis.Del(t.Context(), l.leases...).Err())
}

// begin sells one unit of each step's voucher, and has others on sale beside.
func (l *lane) begin(t *testing.T, stops []stop, beside int) {
	t.Helper()
	instance := check.Value(begin(t, l.s))(t)
	well := newApp(t, instance.BaseURL(), instance.OpsURL())
	well.Groups, l.program.Groups = []string{earlyGroup}, []string{earlyGroup}
	for _, stop := range stops {
		f := &fatality{lane: l, step: stop.step, promised: map[string]string{}}
		f.voucher = well.Create(t, fair(coolEarly, map[string]any{"stock": 10}))
		f.before = well.accepted(t, f.voucher.ID, l.user())
		f.promised[f.before.ID] = f.before.UserID
		f.waits = well.accepted(t, f.voucher.ID, l.user())
		l.dead = append(l.dead, f)
	}
	for range beside {
		l.beside[well.onSale(t, 10_000).ID] = map[string]string{}
	}
	for _, f := range l.dead {
		well.becomes(t, f.before, model.OrderUnpaid)
		well.cancels(t, well.becomes(t, f.waits, model.OrderUnpaid))
	}
	well.Client.CloseIdleConnections()
	halt(instance)
}

// dies starts the program so that it dies at a step, leads it there, and sees that it died by SIGKILL.
func (f *fatality) dies(t *testing.T, drive drive) {
	t.Helper()
	f.lapse(t)
	p := f.program
	p.start(t, settings{"SECKILL_FAILPOINT": string(f.step)})
	check.Patiently(t, "the program is ready, or dead", func() bool { return !p.alive() || p.Status("/readyz") == http.StatusOK })
	drive(t, f)
	check.Receive(t, "the program is at the step "+string(f.step), p.exited)
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	check.Need(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL,
		"the program ended with %v, not by SIGKILL at %s\n%s", p.cmd.ProcessState, f.step, tail(p.output.String(), 20))
}

// settles waits until nothing is left of what a dead process left behind.
func (f *fatality) settles(t *testing.T, well *app) {
	t.Helper()
	if f.hindrance != "" {
		execute(t, f.s, "DROP TRIGGER "+f.hindrance)
	}
	check.Patiently(t, "the order of "+string(f.step)+" is expired", func() bool {
		return !f.expires || well.orders(t, f.voucher.ID)[f.canceled].Status == model.OrderExpired
	})
	orders := well.conserved(t, f.voucher.ID, f.promised)
	if status := orders[f.canceled].Status; status == model.OrderCanceled || status == model.OrderExpired {
		delete(f.promised, f.canceled)
	}
	unbroken(t, orders, f.promised)
	got := well.Insist(t, http.MethodPost, "/vouchers/"+f.voucher.ID+"/seckill", well.stranger().Token(t, f.user(), model.RoleUser), nil)
	check.Equal(t, string(f.step)+": before the others begin", got.Code(), model.CodeNotStarted)
	for _, order := range orders { // of the process that was well, of those that died, and of this one
		if order.Status == model.OrderCanceled || order.Status == model.OrderExpired {
			got := well.Insist(t, http.MethodPost, "/vouchers/"+f.voucher.ID+"/seckill", well.Token(t, order.UserID, model.RoleUser), nil)
			check.Equal(t, string(f.step)+": after an order that is "+string(order.Status), got.Code(), model.CodeCoolingDown)
		}
	}
}

// heard checks that every order that was promised is in the stream of events.
func (l *lane) heard(t *testing.T) {
	t.Helper()
	promised := map[string]bool{}
	for _, f := range l.dead {
		for id := range f.promised {
			promised[id] = true
		}
	}
	for _, orders := range l.beside {
		for id := range orders {
			promised[id] = true
		}
	}
	told := readEvents(t, l.s["SECKILL_NATS_URL"], l.s["SECKILL_EVENTS"], func(told map[string][]string) bool {
		for id := range promised {
			if told[id] == nil {
				return false
			}
		}
		return true
	})
	for id := range promised {
		if !slices.Equal(told[id], []string{"order.unpaid"}) {
			t.Errorf("of order %s it tells %v", id, told[id])
		}
	}
}

// ask sends a request that the program may die of.
func (f *fatality) ask(t *testing.T, path, token string, body any) {
	t.Helper()
	got, err := f.program.Send(http.MethodPost, path, token, body)
	check.That(t, err != nil || got.Status < 500 || got.Code() == model.CodeUnavailable,
		"%s: %d %s", path, got.Status, got.Body)
}

// buyBeside buys one unit of each other voucher, all at once, while the program lives.
func (f *fatality) buyBeside(t *testing.T) (wait func()) {
	t.Helper()
	var buyers sync.WaitGroup
	for id, promised := range f.beside {
		user := f.user()
		buyers.Go(func() {
			got, err := f.program.Place(t, id, user)
			switch {
			case remote.Again(got, err):
			case got.Status == http.StatusAccepted:
				f.mu.Lock()
				defer f.mu.Unlock()
				promised[remote.Decode[model.Order](t, got).ID] = user
			default:
				t.Errorf("%s: %d %s", user, got.Status, got.Body)
			}
		})
	}
	return buyers.Wait
}

// buyOne buys until the program dies, at most one unit: who is promised one waits.
func buyOne(t *testing.T, f *fatality) {
	t.Helper()
	defer f.buyBeside(t)()
	user := f.user()
	check.Patiently(t, user+" is told, or the program dead", func() bool {
		got, err := f.program.Place(t, f.voucher.ID, user)
		switch {
		case remote.Again(got, err):
			return !f.program.alive()
		case got.Status == http.StatusAccepted:
			f.promised[remote.Decode[model.Order](t, got).ID] = user
		case got.Code() == model.CodeAlreadyOrdered: // an earlier answer said that it was not known
		default:
			t.Errorf("%s: %d %s", user, got.Status, got.Body)
		}
		return true
	})
}

func cancelOne(t *testing.T, f *fatality) {
	t.Helper()
	f.canceled = f.before.ID
	f.ask(t, "/orders/"+f.canceled+"/cancel", f.program.Token(t, f.before.UserID, model.RoleUser), nil)
}

// expireOne lets an order's time pass.
func expireOne(t *testing.T, f *fatality) {
	t.Helper()
	f.canceled, f.expires = f.before.ID, true
	execute(t, f.s, "UPDATE orders SET expires_at = created_at WHERE id = '"+f.canceled+"'")
}

// waitForIt has nothing to do: the program finds what an earlier one left.
func waitForIt(*testing.T, *fatality) {}

func rebuildIt(t *testing.T, f *fatality) {
	t.Helper()
	f.ask(t, "/admin/vouchers/"+f.voucher.ID+"/rebuild", f.program.Admin(t), nil)
}

func lowerStock(t *testing.T, f *fatality) {
	t.Helper()
	f.ask(t, "/admin/vouchers/"+f.voucher.ID+"/stock", f.program.Admin(t), map[string]any{"delta": -7})
}

// hinderOne buys while the database stores no order of the voucher.
func hinderOne(t *testing.T, f *fatality) {
	t.Helper()
	f.hindrance = "hindrance_" + strings.ReplaceAll(string(f.step), "-", "_")
	execute(t, f.s, "CREATE TRIGGER "+f.hindrance+" BEFORE INSERT ON orders FOR EACH ROW IF NEW.voucher_id = '"+f.voucher.ID+
		"' THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1105, MESSAGE_TEXT = 'nobody knows why'; END IF")
	buyOne(t, f)
}

// poisonOne queues an order that the database cannot store.
func poisonOne(t *testing.T, f *fatality) {
	t.Helper()
	c := newCounterfeiter(t, f.s)
	poisoned := c.reserve(t, f.voucher.ID, f.user())
	poisoned.Currency = impossible
	c.publish(t, poisoned)
}
