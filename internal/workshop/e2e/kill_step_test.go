//part:kills
//part:mysql8

package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
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

// lane is a deployment whose program dies at one step after another: nothing is settled until a well one comes last.
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

// fatality is a process that dies at a step, with a voucher of its own, and what it leaves behind.
type fatality struct {
	*lane

	step    failpoint.Step
	voucher model.Voucher
	before  model.Order // made before, by a process that was well

	promised map[string]string // of every process, with their users
	canceled string            // the order that is to be canceled, or to expire
	expires  bool              // it expires
	line     []string          // who waits for the unit, in their order

	hindrance string // a trigger that keeps the voucher's orders out of the database until somebody is well
}

func newLane(t *testing.T, s settings) *lane {
	t.Helper()
	program := prepare(t, testserver.Program(t, "failpoint"), s)
	return &lane{s: s, redis: redisOf(t, s), program: program, beside: map[string]map[string]string{}}
}

func (l *lane) mortal(step failpoint.Step) *fatality {
	f := &fatality{lane: l, step: step, promised: map[string]string{}}
	l.dead = append(l.dead, f)
	return f
}

// elects says which jobs only one process does, which is only known once a process was there.
func (l *lane) elects(t *testing.T, jobs ...string) {
	t.Helper()
	deployment := deploymentOf(t, l.s)
	for _, job := range jobs {
		l.leases = append(l.leases, "seckill:"+job+":"+deployment)
	}
}

// lapse ends the leases of a dead process, which takes some seconds when nobody helps.
func (l *lane) lapse(t *testing.T) {
	t.Helper()
	if len(l.leases) > 0 {
		check.Must(t, l.redis.Del(t.Context(), l.leases...).Err())
	}
}

// well has the program run, for as long as something is done with it.
func (l *lane) well(t *testing.T, do func(p *process)) {
	t.Helper()
	l.lapse(t)
	l.program.serves(t)
	do(l.program)
	l.program.kill()
}

func (l *lane) user() string {
	l.users++
	return l.program.user(l.users)
}

type drive func(t *testing.T, f *fatality)

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

// rebuildSteps and releaseSteps are those of a rebuild, and of what relays a returned unit.
func rebuildSteps() []failpoint.Step {
	return []failpoint.Step{
		failpoint.AfterCloseDatabase, failpoint.AfterCloseCopy, failpoint.AfterBarrier, failpoint.AfterLoad,
		failpoint.AfterOpenDatabase, failpoint.AfterOpenCopy,
	}
}

func releaseSteps() []failpoint.Step {
	return []failpoint.Step{failpoint.BeforeRelease, failpoint.AfterRelease, failpoint.AfterReleaseNoted}
}

// lanes are the steps in an order in which each process finds what the earlier ones left.
func lanes() map[string][]stop {
	return map[string][]stop{
		"accepted": slices.Concat(
			stops(buyOne, failpoint.BeforeReserve, failpoint.BeforePublish, failpoint.AfterPublish,
				failpoint.BeforeAnswer, failpoint.AfterReserve),
			// Here reservations exist that were never published.
			stops(waitForIt, failpoint.BeforeRepublish, failpoint.AfterRepublish),
		),
		"persisted": slices.Concat(
			stops(buyOne,
				failpoint.BeforePersist, failpoint.BeforeInsert, failpoint.AfterInsert, failpoint.BeforeCommit,
				failpoint.AfterCommit,
				failpoint.BeforeSettle, failpoint.AfterSettle, failpoint.BeforeAck, failpoint.AfterAck,
				failpoint.AfterEventsPublished),
			stops(hinderOne, failpoint.BeforeMove, failpoint.AfterMove),
			stops(poisonOne, failpoint.BeforeDeadLetter, failpoint.AfterDeadLetter),
		),
		"returned": slices.Concat(
			stops(cancelOne, failpoint.BeforeCancel, failpoint.AfterReturn, failpoint.AfterReturnNoted,
				failpoint.AfterCancel),
			stops(waitForIt, releaseSteps()...), // an outbox row is there
			stops(expireOne, failpoint.BeforeExpire, failpoint.AfterExpire),
		),
		"rebuilt": slices.Concat(
			stops(rebuildIt, rebuildSteps()...),
			stops(lowerStock, failpoint.AfterIntent, failpoint.AfterLowerCopy, failpoint.AfterStockChange),
		),
	}
}

// The program kills itself with SIGKILL at every step of an order's road, and later ones settle what it left.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	led := slices.Concat(paySteps(), refundSteps(), entrySteps(),
		drawSteps()) // TestKilledWithMoneyUnderWay, TestKilledInADraw
	for _, way := range comebacks() {
		led = append(led, way.steps...) // TestKilledWhereUsersWait
	}
	for _, stops := range lanes() {
		for _, s := range stops {
			led = append(led, s.step)
		}
	}
	text := string(check.Value(os.ReadFile("../../failpoint/failpoint.go"))(t))
	for _, step := range regexp.MustCompile(`Step = "(.*)"`).FindAllStringSubmatch(text, -1) {
		check.That(t, slices.Contains(led, failpoint.Step(step[1])), "nothing leads to the step %s", step[1])
	}
	for name, stops := range lanes() {
		others := []int{1}
		if check.Faults && (name == "accepted" || name == "persisted") { // which share calls, messages and transactions
			others = []int{1, 10, 100}
		}
		for _, vouchers := range others {
			t.Run(fmt.Sprintf("%s, %d vouchers", name, vouchers), func(t *testing.T) {
				t.Parallel()
				killed(t, stops, vouchers-1)
			})
		}
	}
}

func killed(t *testing.T, stops []stop, beside int) {
	l := newLane(t, asyncOnServers(t).with(settings{"SECKILL_EVENTS": newStream()}))
	l.program.Groups = []string{earlyGroup}
	l.well(t, func(p *process) { // one unit of each step's voucher is sold, and one came back
		for _, stop := range stops {
			f := l.mortal(stop.step)
			f.voucher = p.Create(t, fair(coolEarly, map[string]any{"stock": 10}))
			f.before = p.accepted(t, f.voucher.ID, l.user())
			f.promised[f.before.ID] = f.before.UserID
			p.cancels(t, p.becomes(t, p.accepted(t, f.voucher.ID, l.user()), model.OrderUnpaid))
			p.becomes(t, f.before, model.OrderUnpaid)
		}
		for range beside {
			l.beside[p.onSale(t, 10_000).ID] = map[string]string{}
		}
	})
	l.elects(t, "reconciler", "expiry", "events")
	for n, stop := range stops {
		l.dead[n].dies(t, stop.drive)
	}
	l.well(t, func(p *process) {
		for n, f := range l.dead {
			f.settles(t, p.app)
			p.sellsOn(t, f.voucher.ID, 10_000*(n+1))
		}
		for id, promised := range l.beside {
			p.kept(t, id, promised)
		}
		l.heard(t)
	})
}

// dies starts the program so that it dies at a step, leads it there, and sees that it died by SIGKILL.
func (f *fatality) dies(t *testing.T, drive drive) {
	t.Helper()
	f.lapse(t)
	p := f.program
	p.start(t, settings{"SECKILL_FAILPOINT": string(f.step)})
	check.Patiently(t, "it is ready, or dead",
		func() bool { return !p.alive() || p.Status("/readyz") == http.StatusOK })
	drive(t, f)
	check.Receive(t, "the program is at the step "+string(f.step), p.exited)
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	check.Need(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL,
		"the program ended with %v, not by SIGKILL at %s\n%s", p.cmd.ProcessState, f.step, tail(p.output.String(), 20))
}

// settles waits until nothing is left of what a dead process left behind.
func (f *fatality) settles(t *testing.T, well *app) {
	if f.hindrance != "" {
		execute(t, f.s, "DROP TRIGGER "+f.hindrance)
	}
	check.Patiently(t, "the order of "+string(f.step)+" is expired", func() bool {
		return !f.expires || well.orders(t, f.voucher.ID)[f.canceled].Status == model.OrderExpired
	})
	over := func(o model.Order) bool { return o.Status == model.OrderCanceled || o.Status == model.OrderExpired }
	orders := well.conserved(t, f.voucher.ID, f.promised)
	if over(orders[f.canceled]) {
		delete(f.promised, f.canceled)
	}
	unbroken(t, orders, f.promised)
	early := well.stranger().buy(t, f.voucher.ID, f.user())
	check.Equal(t, string(f.step)+": before the others begin", early.Code(), model.CodeNotStarted)
	for _, o := range orders { // of the process that was well, of those that died, and of this one
		if over(o) {
			check.Equal(t, string(f.step)+": after an end", well.buy(t, f.voucher.ID, o.UserID).Code(),
				model.CodeCoolingDown)
		}
	}
}

// heard checks that every order that was promised is in the stream of events.
func (l *lane) heard(t *testing.T) {
	all := slices.Collect(maps.Values(l.beside))
	for _, f := range l.dead {
		all = append(all, f.promised)
	}
	missing := func(told map[string][]string) (ids []string) {
		for _, promised := range all {
			for id := range promised {
				if !slices.Equal(told[id], []string{"order.unpaid"}) {
					ids = append(ids, id)
				}
			}
		}
		return ids
	}
	told := readEvents(t, l.s["SECKILL_NATS_URL"], l.s["SECKILL_EVENTS"], func(told map[string][]string) bool {
		return !slices.ContainsFunc(missing(told), func(id string) bool { return told[id] == nil })
	})
	for _, id := range missing(told) {
		t.Errorf("of order %s it tells %v", id, told[id])
	}
}

func (f *fatality) ask(t *testing.T, path, token string, body any) {
	t.Helper()
	got, err := f.program.Send(http.MethodPost, path, token, body)
	check.That(t, err != nil || got.Status < 500 || got.Code() == model.CodeUnavailable, "%s: %s", path, got.Body)
}

// promises asks for one unit, and reports whether the user is told for good. The order of a promise is kept.
func (f *fatality) promises(t *testing.T, voucherID, user string, promised map[string]string) (told bool) {
	t.Helper()
	got, err := f.program.Place(t, voucherID, user)
	if remote.Again(got, err) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if got.Status == http.StatusAccepted {
		promised[remote.Decode[model.Order](t, got).ID] = user
	} else if got.Code() != model.CodeAlreadyOrdered { // an earlier answer said that it was not known
		t.Errorf("%s: %d %s", user, got.Status, got.Body)
	}
	return true
}

// buyOne buys until the program dies, at most one unit; who is promised one waits. Each other voucher sells one beside.
func buyOne(t *testing.T, f *fatality) {
	t.Helper()
	var buyers sync.WaitGroup
	defer buyers.Wait()
	for id, promised := range f.beside {
		user := f.user()
		buyers.Go(func() { f.promises(t, id, user, promised) })
	}
	user := f.user()
	check.Patiently(t, user+" is told, or the program dead", func() bool {
		return f.promises(t, f.voucher.ID, user, f.promised) || !f.program.alive()
	})
}

func cancelOne(t *testing.T, f *fatality) {
	t.Helper()
	f.canceled = f.before.ID
	f.ask(t, "/orders/"+f.canceled+"/cancel", f.program.as(t, f.before.UserID), nil)
}

func expireOne(t *testing.T, f *fatality) {
	t.Helper()
	f.canceled, f.expires = f.before.ID, true
	execute(t, f.s, "UPDATE orders SET expires_at = created_at WHERE id = '"+f.canceled+"'")
}

// waitForIt has nothing to do: the program finds what an earlier one left.
func waitForIt(*testing.T, *fatality) {}

func rebuildIt(t *testing.T, f *fatality) {
	f.ask(t, "/admin/vouchers/"+f.voucher.ID+"/rebuild", f.program.Admin(t), nil)
}

func lowerStock(t *testing.T, f *fatality) {
	f.ask(t, "/admin/vouchers/"+f.voucher.ID+"/stock", f.program.Admin(t), map[string]any{"delta": -7})
}

func (f *fatality) hindered(t *testing.T, signal string) {
	t.Helper()
	f.hindrance = "hindrance_" + strings.ReplaceAll(string(f.step), "-", "_")
	execute(t, f.s, refusing(f.hindrance, f.voucher.ID, signal))
}

// hinderOne buys while the database stores no order of the voucher.
func hinderOne(t *testing.T, f *fatality) {
	f.hindered(t, "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1105")
	buyOne(t, f)
}

// poisonOne buys, and the database says that the order's data cannot be stored: it may fail.
func poisonOne(t *testing.T, f *fatality) {
	f.hindered(t, "SIGNAL SQLSTATE '22001' SET MYSQL_ERRNO = 1406")
	user := f.user()
	check.Patiently(t, user+" is told, or the program dead", func() bool {
		return f.promises(t, f.voucher.ID, user, map[string]string{}) || !f.program.alive()
	})
}
