//part:packaging

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

const (
	// troubled is the voucher in trouble, or the hot one.
	troubled = "v000001"
	// troubledRate is how many a second ask for it, whatever the answers are: users who are refused do not ask more often than users who buy.
	troubledRate = 400
	// otherRate is more than the others sell in a second, each order by a user of its own.
	otherRate = 8000
)

// misfortune is what happens to one voucher.
type misfortune struct {
	name   string
	begins func(s *session) (end func())
}

func misfortunes(mode model.OrderMode) []misfortune {
	all := []misfortune{{"nothing", (*session).harmNothing}, {"locked row", (*session).lockRow}, {"orders refused", (*session).refuseOrders}}
	if mode == model.ModeAsync {
		all = append(all, misfortune{"key of another type", (*session).spoilKey})
	}
	return all
}

// harmNothing is the control: its ratio differs from 1 by what the machine does.
func (s *session) harmNothing() (end func()) { return func() {} }

// lockRow keeps the row of the voucher locked.
func (s *session) lockRow() (end func()) {
	s.Helper()
	tx := check.Value(s.db.BeginTx(s.Context(), nil))(s)
	check.Must(s, check.ErrorOf(tx.ExecContext(s.Context(), "SELECT id FROM "+s.schema+".vouchers WHERE id = ? FOR UPDATE", troubled)))
	return func() { check.Must(s, tx.Rollback()) }
}

// refuseOrders has the database store no order of the voucher.
func (s *session) refuseOrders() (end func()) {
	s.Helper()
	execute := func(statement string) { check.Must(s, check.ErrorOf(s.db.ExecContext(s.Context(), statement))) }
	execute("CREATE TRIGGER " + s.schema + ".trouble BEFORE INSERT ON " + s.schema + ".orders FOR EACH ROW IF NEW.voucher_id = '" + troubled +
		"' THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1105, MESSAGE_TEXT = 'no order can be stored'; END IF")
	return func() { execute("DROP TRIGGER " + s.schema + ".trouble") }
}

// spoilKey puts something else under a key of the voucher's hot copy, again and again.
func (s *session) spoilKey() (end func()) {
	s.Helper()
	const again = time.Second
	over := make(chan struct{})
	var spoils sync.WaitGroup
	spoils.Go(func() {
		for {
			for _, key := range check.Value(s.memory.Keys(s.Context(), "seckill:v1:{"+troubled+"}:*:due").Result())(s) {
				check.Must(s, s.memory.Set(s.Context(), key, "x", 0).Err())
			}
			select {
			case <-over:
				return
			case <-time.After(again):
			}
		}
	})
	return func() {
		close(over)
		spoils.Wait()
		s.opens(troubled)
	}
}

// neighbours measures what one voucher in trouble costs so many others. The ratio is that of their orders in the same time, with the
// trouble and without it, before and after; the other figures are those of one of their orders. Everything adds up after each.
func (h *harness) neighbours(c workCase, size int, into *results) {
	h.Helper()
	s := h.begin(c, h.builds[0], 1)
	defer s.end()
	s.onSaleAtOnce(1 + size)
	all := misfortunes(c.mode)
	times, seconds := 2*len(all)+2, 10*h.seconds
	others, own := s.spreadOver(2, size, times*otherRate*seconds), s.spreadOver(1, 1, times*troubledRate*seconds)
	measured := 0
	sold := func() Figures {
		w := work{head: "POST /api/v1/vouchers/"}
		from := s.look(true)
		var load sync.WaitGroup
		load.Go(func() { constant(h.T, s.instances[0].URL, troubledRate, seconds, w.on(own.part(measured, times))) })
		heard := closed(h.T, s.urls(), h.connections[0], seconds, w.on(others.part(measured, times)))
		load.Wait()
		measured++
		heard.answers -= heard.refused
		return s.figures(heard.answers, heard, from, s.look(false))
	}
	sold() // everything is warm
	s.drained()
	before := sold()
	for _, m := range all {
		s.drained()
		end := m.begins(s)
		during := sold()
		end()
		s.audit()
		after := sold()
		during[Ratio] = 2 * during[Rate] / (before[Rate] + after[Rate])
		into.add("", c.name+seriesMark+"beside "+m.name, strconv.Itoa(size), during)
		before = after
	}
	before[Ratio] = 1
	into.add("", c.name+seriesMark+"neighbours", strconv.Itoa(size), before)
}

// hot measures how long an order of one voucher takes at half of what it can sell: alone, and beside so many others that are bought
// slowly, each once a second.
func (h *harness) hot(c workCase, size int, into *results) {
	h.Helper()
	s := h.begin(c, h.builds[0], 1)
	defer s.end()
	s.onSaleAtOnce(1 + size)
	const measurements = 4
	own, others := s.spreadOver(1, 1, measurements*h.mostOrders*h.seconds), s.spreadOver(2, size, 2*size*h.seconds)
	w := work{head: "POST /api/v1/vouchers/", sells: true}
	closed(h.T, s.urls(), h.connections[0], 1, w.on(own.part(0, measurements)))
	s.drained()
	perSecond := int(closed(h.T, s.urls(), h.connections[0], h.seconds, w.on(own.part(1, measurements))).rate() / 2)
	for n, beside := range []int{0, size} {
		s.drained()
		var load sync.WaitGroup
		if beside > 0 {
			load.Go(func() { constant(h.T, s.instances[0].URL, size, h.seconds, w.on(others)) })
		}
		heard := constant(h.T, s.instances[0].URL, perSecond, h.seconds, w.on(own.part(2+n, measurements)))
		load.Wait()
		into.add("", c.name+seriesMark+"hot", strconv.Itoa(beside), heard.latencies())
	}
}

// overload measures how long orders and refusals take when so many per cent of what can be sold is asked for, whatever the answers take.
// The generator has cores of its own: a request would wait in it for a core, and not for the service.
func (h *harness) overload(c workCase, size int, into *results) {
	h.Helper()
	s := h.begin(c, h.builds[0], 1)
	defer s.end()
	defer s.separate()()
	w := s.selling()
	closed(h.T, s.urls(), h.connections[0], 1, w)
	w = s.selling()
	reached := closed(h.T, s.urls(), h.connections[0], h.seconds, w).rate()
	w = s.selling()
	heard := constant(h.T, s.instances[0].URL, int(reached)*size/100, h.seconds, w)
	heard.answers -= heard.refused
	into.add("", c.name+seriesMark+"overload", strconv.Itoa(size), heard.latencies())
	into.add("", c.name+seriesMark+"overload, refused", strconv.Itoa(size), heard.refusals.latencies())
	if heard.broken > 0 {
		h.fail("%s: %d requests had no answer at %d %%", c.name, heard.broken, size)
	}
}

// separate gives the generator half of the cores, and the service and its servers the others.
func (s *session) separate() (undo func()) {
	s.Helper()
	cores := runtime.NumCPU()
	if cores < 2 {
		s.Fatal("the generator and the service need a core each")
	}
	served := []int{s.database.PID(), s.redis.PID(), s.nats.PID()}
	for _, i := range s.processes() {
		served = append(served, i.PID())
	}
	bind := func(first, last int, processes ...int) {
		for _, process := range processes {
			said, err := exec.CommandContext(s.Context(), "taskset", "-a", "-c", "-p", fmt.Sprintf("%d-%d", first, last), strconv.Itoa(process)).CombinedOutput()
			if err != nil {
				s.Fatalf("taskset: %v\n%s", err, said)
			}
		}
	}
	bind(0, cores/2-1, os.Getpid())
	bind(cores/2, cores-1, served...)
	return func() { bind(0, cores-1, append(served, os.Getpid())...) }
}

func (h heard) latencies() Figures {
	return Figures{Rate: h.rate(), P50: milliseconds(h.p50), P99: milliseconds(h.p99), P999: milliseconds(h.p999)}
}
