package e2e_test

import (
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"seckill/internal/failpoint"
	"seckill/internal/testserver"
	"seckill/model"
)

// lanes is how many processes are killed at a time: they wait for each other's
// leases more than they work.
const lanes = 20

// fatality is one process that dies at a step, and what it leaves behind.
type fatality struct {
	step    failpoint.Step
	s       settings
	program *process
	voucher model.Voucher
	before  []model.Order // made before, by a process that was well

	promised map[string]string // of every process, with their users
	canceled string            // the order that is to be canceled, or to expire
	next     int               // number of the next new user
}

// user is one nobody has seen before.
func (f *fatality) user() string {
	f.next++
	return f.program.user(f.next)
}

// drives says for every step what a process has to be asked for to reach it.
func drives() map[failpoint.Step]func(*testing.T, *fatality) {
	all := map[failpoint.Step]func(*testing.T, *fatality){}
	give := func(drive func(*testing.T, *fatality), steps ...failpoint.Step) {
		for _, step := range steps {
			all[step] = drive
		}
	}
	give(buyOne,
		failpoint.BeforeReserve, failpoint.AfterReserve, failpoint.BeforePublish, failpoint.AfterPublish, failpoint.BeforeAnswer,
		failpoint.BeforePersist, failpoint.BeforeInsert, failpoint.AfterInsert, failpoint.BeforeCommit, failpoint.AfterCommit,
		failpoint.BeforeSettle, failpoint.AfterSettle, failpoint.BeforeAck, failpoint.AfterAck, failpoint.AfterEventsPublished)
	give(cancelOne, failpoint.BeforeCancel, failpoint.AfterCancel, failpoint.AfterReturn, failpoint.AfterReturnNoted)
	give(waitForIt, failpoint.BeforeRelease, failpoint.AfterRelease, failpoint.AfterReleaseNoted)
	give(waitForIt, failpoint.BeforeExpire, failpoint.AfterExpire)
	give(poisonOne, failpoint.BeforeDeadLetter, failpoint.AfterDeadLetter)
	give(waitForIt, failpoint.BeforeRepublish, failpoint.AfterRepublish)
	give(rebuildIt,
		failpoint.AfterCloseDatabase, failpoint.AfterCloseCopy, failpoint.AfterBarrier,
		failpoint.AfterLoad, failpoint.AfterOpenDatabase, failpoint.AfterOpenParts, failpoint.AfterOpenCopy)
	give(lowerStock, failpoint.AfterIntent, failpoint.AfterGive, failpoint.AfterLowerCopy, failpoint.AfterLowerStock)
	return all
}

// The real program is killed with SIGKILL, by itself, at every step of an
// order's road, and what it leaves behind is settled by the next one.
//
//nolint:paralleltest // it has lanes of its own: these processes wait more than they work
func TestKilledAtEveryStep(t *testing.T) {
	drive := drives()
	queue := make(chan failpoint.Step, len(failpoint.Steps()))
	for _, step := range failpoint.Steps() {
		if slices.Contains(moneySteps(), step) {
			continue // TestKilledWithMoneyUnderWay
		}
		if drive[step] == nil {
			t.Errorf("nothing leads to the step %s", step)
			continue
		}
		queue <- step
	}
	close(queue)
	testserver.Program(t, "failpoint")
	var running sync.WaitGroup
	for range lanes {
		running.Go(func() {
			for step := range queue {
				t.Run(string(step), func(t *testing.T) { killedAt(t, step, drive[step]) })
			}
		})
	}
	running.Wait()
}

func killedAt(t *testing.T, step failpoint.Step, drive func(*testing.T, *fatality)) {
	t.Helper()
	const stock = 30
	s := listened(asyncOnServers(t), step)
	f := &fatality{step: step, s: s, promised: map[string]string{}}
	f.program = prepare(t, testserver.Program(t, "failpoint"), s)
	f.program.start(t)
	f.program.awaitReady(t)
	f.voucher = f.program.divided(t, stock, partsAt(step))
	for range 3 {
		order := f.program.accepted(t, f.voucher.ID, f.user())
		f.promised[order.ID] = order.UserID
		f.before = append(f.before, f.program.becomes(t, order, model.OrderUnpaid))
	}
	f.program.quiet(t, f.voucher.ID, settlement)
	f.program.kill()

	switch step {
	case failpoint.BeforeRepublish, failpoint.AfterRepublish:
		f.dies(t, failpoint.AfterReserve, buyOne) // leaves a reservation that was never published
	case failpoint.BeforeRelease, failpoint.AfterRelease, failpoint.AfterReleaseNoted:
		f.dies(t, failpoint.AfterCancel, cancelOne) // leaves an outbox row
	case failpoint.BeforeExpire, failpoint.AfterExpire:
		f.lapse(t)
	}
	f.dies(t, step, drive)

	died := time.Now()
	f.program.start(t)
	f.program.awaitReady(t)
	f.awaitExpiry(t)
	orders := f.program.conserved(t, f.voucher.ID, f.promised)
	if status := orders[f.canceled].Status; status == model.OrderCanceled || status == model.OrderExpired {
		delete(f.promised, f.canceled)
	}
	unbroken(t, orders, f.promised)
	f.heard(t)
	t.Logf("settled after %v", time.Since(died).Round(100*time.Millisecond))
	f.program.sellsOn(t, f.voucher.ID, 1000)
}

// partsAt is into how many parts the voucher is divided: at every other step into more than it is to lose of its stock
// in the first one.
func partsAt(step failpoint.Step) int {
	asked := step == failpoint.AfterOpenParts || step == failpoint.AfterGive
	if asked || slices.Index(failpoint.Steps(), step)%2 == 0 {
		return 16
	}
	return 1
}

// dies starts the program so that it dies at a step, leads it there, and sees
// that it died by SIGKILL.
func (f *fatality) dies(t *testing.T, step failpoint.Step, drive func(*testing.T, *fatality)) {
	t.Helper()
	f.program.start(t, settings{"SECKILL_FAILPOINT": string(step)})
	select {
	case <-f.program.exited:
	case <-f.ready():
		drive(t, f)
	}
	select {
	case <-f.program.exited:
	case <-time.After(settlement):
		t.Fatalf("the program was never at the step %s", step)
	}
	status, ok := f.program.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the program ended with %v, not by SIGKILL at %s\n%s", f.program.cmd.ProcessState, step, tail(f.program.output.String(), 20))
	}
}

// ready is closed when the program is.
func (f *fatality) ready() <-chan struct{} {
	ready := make(chan struct{})
	// Those of this start: the next one may come before the last request has its answer.
	client, url, exited := f.program.client, f.program.url, f.program.exited
	go func() {
		defer close(ready)
		for deadline := time.Now().Add(settlement); time.Now().Before(deadline); {
			got, err := send(client, http.MethodGet, url+"/readyz", "", nil)
			if err == nil && got.status == http.StatusOK {
				return
			}
			select {
			case <-exited:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return ready
}

// alive reports whether the program has not died yet.
func (f *fatality) alive() bool {
	select {
	case <-f.program.exited:
		return false
	default:
		return true
	}
}

// ask sends a request that the program may die of.
func (f *fatality) ask(t *testing.T, method, path, token string, body any) {
	t.Helper()
	got, err := send(f.program.client, method, f.program.url+"/api/v1"+path, token, body)
	if err == nil && got.status >= 500 && got.code() != model.CodeUnavailable {
		t.Errorf("%s %s: %d %s", method, path, got.status, got.body)
	}
}

// buyOne buys until the program dies, at most one unit: who is promised one waits.
func buyOne(t *testing.T, f *fatality) {
	t.Helper()
	user := f.user()
	for f.alive() {
		got, err := f.program.place(t, f.voucher.ID, user)
		switch {
		case err == nil && got.status == http.StatusAccepted:
			f.promised[decode[model.Order](t, got).ID] = user
			return
		case err == nil && got.code() != model.CodeUnavailable:
			t.Errorf("%s: %d %s", user, got.status, got.body)
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

func cancelOne(t *testing.T, f *fatality) {
	t.Helper()
	order := f.before[0]
	f.canceled = order.ID
	f.ask(t, http.MethodPost, "/orders/"+order.ID+"/cancel", f.program.token(t, order.UserID, model.RoleUser), nil)
}

// waitForIt has nothing to do: the program finds what an earlier one left.
func waitForIt(*testing.T, *fatality) {}

func rebuildIt(t *testing.T, f *fatality) {
	t.Helper()
	f.ask(t, http.MethodPost, "/admin/vouchers/"+f.voucher.ID+"/rebuild", f.program.admin(t), nil)
}

func lowerStock(t *testing.T, f *fatality) {
	t.Helper()
	f.ask(t, http.MethodPost, "/admin/vouchers/"+f.voucher.ID+"/stock", f.program.admin(t), map[string]any{"delta": -7})
}

// poisonOne queues an order that the database cannot store.
func poisonOne(t *testing.T, f *fatality) {
	t.Helper()
	c := newCounterfeiter(t, f.s)
	poisoned := c.reserve(t, f.voucher.ID, f.user())
	poisoned.Currency = impossible
	c.publish(t, poisoned)
}
