package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

func TestServerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"MariaDB", "Redis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database, redis := testserver.MariaDB(t), testserver.Redis(t)
			victim := map[string]*testserver.Server{"MariaDB": database, "Redis": redis}[name]
			a := launch(t, onServers(t).with(settings{
				"SECKILL_DATABASE_DSN": database.DSN("seckill"),
				"SECKILL_REDIS_URL":    redis.URL(),
			}))
			const stock = 400
			voucher := a.onSale(t, stock)
			c := newCrowd(a.app, voucher.ID)
			var load sync.WaitGroup
			load.Go(func() { c.buy(t, users(a.app, 0, 1200), 32) })

			c.afterSales(t, 50)
			victim.Kill()
			until(t, 10*time.Second, "readyz tells", func() bool {
				return a.status(t, "/readyz") == http.StatusServiceUnavailable
			})
			if got := a.status(t, "/livez"); got != http.StatusOK {
				t.Errorf("livez %d while %s is down", got, name)
			}
			until(t, 10*time.Second, "clients hear 503", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.refused > 32
			})
			victim.Start()
			until(t, 30*time.Second, "readyz recovers", func() bool { return a.status(t, "/readyz") == http.StatusOK })
			load.Wait()
			sold(t, a.app, voucher.ID, c.told, stock)
			t.Logf("%d × 201, %d × 503, %d without an answer", c.yes, c.refused, c.failed)
		})
	}
}

func TestTerminatedUnderLoad(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	leaving, staying := launch(t, s), launch(t, s)
	const stock = 100_000 // never sold out: every request is at work when the signal comes
	voucher := leaving.onSale(t, stock)
	c := newCrowd(leaving.app, voucher.ID)
	stop := make(chan struct{})
	var load sync.WaitGroup
	for buyer := range 32 {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				user := leaving.user(buyer*1_000_000 + n)
				got, err := send(leaving.client, http.MethodPost, leaving.url+"/api/v1/vouchers/"+voucher.ID+"/seckill", leaving.token(t, user, model.RoleUser), nil)
				if err == nil {
					c.note(t, user, got)
				}
			}
		})
	}
	c.afterSales(t, 200)
	began := time.Now()
	if err := leaving.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, 2*time.Second, "readiness is off", func() bool { return leaving.status(t, "/readyz") == http.StatusServiceUnavailable })
	user := leaving.user(-1)
	if got := leaving.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", leaving.token(t, user, model.RoleUser), nil); got.status != http.StatusCreated {
		t.Errorf("an order right after readiness went off: %d %s", got.status, got.body)
	}
	<-leaving.exited
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if code := leaving.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	close(stop)
	load.Wait()
	rows := staying.rows(t, voucher.ID)
	for user, order := range c.told {
		if rows[user].ID != order.ID {
			t.Errorf("%s was told %q, the row says %q", user, order.ID, rows[user].ID)
		}
	}
	if audit := staying.audit(t, voucher.ID); !audit.Balanced {
		t.Errorf("audit %+v", audit)
	}
	t.Logf("%d × 201, %d rows", c.yes, len(rows))
}

// Neither a client that never finishes its request, nor a profile that runs, nor
// a database that hangs keeps a stop from ending in time.
func TestTerminatedWhileEverythingHangs(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	a := launch(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": database.DSN("seckill")}))
	voucher := a.onSale(t, 10)
	address := strings.TrimPrefix(a.url, "http://")
	stalled, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer stalled.Close()
	if _, err := fmt.Fprintf(stalled, "POST /api/v1/auth/login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", address); err != nil {
		t.Fatal(err)
	}
	profiled := make(chan struct{})
	go func() {
		defer close(profiled)
		_, _ = send(a.client, http.MethodGet, a.ops+"/debug/pprof/profile?seconds=25", "", nil) // it is cut off
	}()
	database.Pause()
	defer database.Resume()
	bought := make(chan struct{})
	go func() {
		defer close(bought)
		_, _ = send(a.client, http.MethodPost, a.url+"/api/v1/vouchers/"+voucher.ID+"/seckill", a.token(t, a.user(1), model.RoleUser), nil)
	}()
	until(t, 5*time.Second, "the profile runs", func() bool {
		got, err := send(a.client, http.MethodGet, a.ops+"/debug/pprof/goroutine?debug=1", "", nil)
		return err == nil && strings.Contains(string(got.body), "pprof.Profile")
	})
	began := time.Now()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-a.exited
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if code := a.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	<-profiled
	<-bought
}
