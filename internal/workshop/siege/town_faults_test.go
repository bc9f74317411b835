//go:build faults

//part:siege

package siege_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

const (
	secret = "a secret of the siege, 32 bytes or more"
	// descriptors is what the service's process may open: below what an attacker can open, as on any machine.
	descriptors = 4096
	// shelves is how many vouchers there are besides the one that is sold.
	shelves = 10_000
	// stock is never sold out.
	stock = 10_000_000
)

// town is the service under siege, with servers of its own. In async the worker is a process of its own, so that an
// attack may find it paused.
type town struct {
	remote.Service

	t        *testing.T
	mode     string
	dsn      string // of its database
	server   *exec.Cmd
	worker   *exec.Cmd
	vouchers []string // of every crowd, to be audited
	crowd    *crowd
}

// build starts the servers and the service, and fills the shelves.
func build(t *testing.T, mode string, more ...string) *town {
	t.Helper()
	database, redis := testserver.MariaDB(t), testserver.Redis(t)
	main := testserver.Address(t)
	settings := []string{
		"SECKILL_DATABASE_DSN=" + database.DSN(testserver.DefaultSchema), "SECKILL_REDIS_URL=" + redis.URL(),
		"SECKILL_JWT_SECRET=" + secret, "SECKILL_ORDER_MODE=" + mode, "SECKILL_LOG_LEVEL=error",
	}
	settings = append(settings, more...)
	role := "all"
	if mode == "async" {
		settings = append(settings, "SECKILL_NATS_URL="+testserver.NATS(t).URL())
		role = "api"
	}
	w := &town{t: t, mode: mode, dsn: database.DSN(testserver.DefaultSchema)}
	w.Service = remote.Service{URL: "http://" + main, Client: clientFrom("127.0.2.1", 10), Tokens: check.Value(remote.Authority(secret))(t)}
	t.Cleanup(w.Client.CloseIdleConnections)
	w.server = serve(t, append(settings, "SECKILL_ROLE="+role, "SECKILL_HTTP_ADDR="+main, "SECKILL_OPS_ADDR="+testserver.Address(t)))
	w.ready(w.URL)
	if mode == "async" {
		addr := testserver.Address(t)
		w.worker = serve(t, append(settings, "SECKILL_ROLE=worker", "SECKILL_HTTP_ADDR="+addr, "SECKILL_OPS_ADDR="+testserver.Address(t)))
		w.ready("http://" + addr)
	}
	w.fill()
	return w
}

// serve runs the program in a process of its own until the test ends.
func serve(t *testing.T, settings []string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", `ulimit -n `+strconv.Itoa(descriptors)+` && exec "$0" serve`, testserver.Program(t))
	cmd.Env = append(os.Environ(), settings...)
	said := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = said, said
	ended, err := testserver.StartTied(cmd)
	check.Must(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			lines := strings.Split(said.String(), "\n")
			t.Logf("the service said:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	})
	return cmd
}

func (w *town) ready(url string) {
	w.t.Helper()
	at := remote.Service{URL: url, Client: w.Client}
	check.Eventually(w.t, "the service is ready", func() bool { return at.Status("/readyz") == http.StatusOK })
}

// fill puts vouchers on the shelves that nobody buys, some of them sold out.
func (w *town) fill() {
	w.t.Helper()
	db, err := sql.Open("mysql", w.dsn)
	check.Must(w.t, err)
	defer db.Close()
	_, err = db.ExecContext(w.t.Context(), fmt.Sprintf(
		`INSERT INTO vouchers (id, title, description, price, face_value, currency, stock, remaining, begin_at, end_at, state, version, created_at)
		SELECT CONCAT('shelf', seq), 'shelf', '', 1000, 2000, 'CNY', 100, IF(seq MOD 10 = 0, 0, 100), UTC_TIMESTAMP(6) - INTERVAL 1 DAY,
			UTC_TIMESTAMP(6) + INTERVAL 30 DAY, 'published', 1, UTC_TIMESTAMP(6) FROM seq_1_to_%d`, shelves))
	check.Must(w.t, err)
}

// newCrowd puts a voucher up for a crowd of its own.
func (w *town) newCrowd() *crowd {
	w.t.Helper()
	voucher := w.Create(w.t, map[string]any{"stock": stock})
	w.vouchers = append(w.vouchers, voucher.ID)
	c := newCrowd(w.URL, voucher.ID, w.Tokens)
	w.t.Cleanup(func() {
		for _, client := range c.clients {
			client.CloseIdleConnections()
		}
	})
	// On sale is when the first is sold: in async the hot copy is loaded first.
	check.Eventually(w.t, "the voucher is on sale", func() bool { return c.buy(w.t.Context()) })
	return c
}

// capacity is what the service accepts a second when it is asked as often as it answers.
func (w *town) capacity(length time.Duration) int {
	w.crowd = w.newCrowd()
	w.crowd.closed(w.t.Context(), closedBuyers, length) // everything is warm
	return w.crowd.closed(w.t.Context(), closedBuyers, length)
}

// besiege measures the sale before, during and after one attack.
func (w *town) besiege(a attack, rate int, phase time.Duration) row {
	w.t.Helper()
	c := w.crowd
	sale := c.open(w.t.Context(), rate)
	<-time.After(time.Second) // real time: the crowd opens its connections before anything is measured
	r := row{attack: a.name}

	began := time.Now()
	<-time.After(phase)
	testserver.ForgetPeak(w.t, w.server.Process.Pid)
	if a.pauseWorker {
		check.Must(w.t, w.worker.Process.Signal(syscall.SIGSTOP))
	}
	attacker := w.launch(a)
	attacked := time.Now()
	<-time.After(phase)
	ended := time.Now()
	r.attackers = attacker.end()
	if a.pauseWorker {
		check.Must(w.t, w.worker.Process.Signal(syscall.SIGCONT))
	}
	r.memory = testserver.PeakMemory(w.t, w.server.Process.Pid)
	stopped := time.Now()
	after := min(backWithin, 2*phase) + time.Second
	<-time.After(after + time.Second) // real time: the phase that is measured, and who still waits for an answer
	sale.end()

	r.quiet, r.siege = sale.between(began, began.Add(phase)), sale.between(attacked, ended)
	r.after = sale.between(stopped, stopped.Add(after))
	r.back = -1
	for second := time.Duration(0); second < after; second += time.Second {
		now := sale.between(stopped.Add(second), stopped.Add(second+time.Second))
		if now.rate() >= (1-acceptedLoss)*r.quiet.rate() && now.p99() <= slower*r.quiet.p99() {
			r.back = second
			break
		}
	}
	w.t.Logf("%s: %s; buyers heard so far: %s", a.name, r.attackers.answers(), c.told())
	return r
}

// conserved checks that every accepted order is there, that the database, Redis and the queue agree, and that nothing
// was oversold.
func (w *town) conserved() {
	w.t.Helper()
	for _, id := range w.vouchers {
		var audit model.Audit
		check.Eventually(w.t, "the audit is balanced and nothing is under way", func() bool {
			audit = w.Audit(w.t, id)
			return audit.Balanced && (audit.Queue == nil || audit.Queue.Pending == 0) && (audit.Redis == nil || audit.Redis.Reserved == 0)
		})
		d := audit.Database
		if d.Stock != d.Remaining+d.LiveOrders {
			w.t.Errorf("voucher %s: stock %d, remaining %d, live orders %d", id, d.Stock, d.Remaining, d.LiveOrders)
		}
		if c := w.crowd; c != nil && id == c.voucher && d.LiveOrders < c.yes.Load() {
			w.t.Errorf("voucher %s: %d orders were accepted, and %d are live", id, c.yes.Load(), d.LiveOrders)
		}
	}
}
