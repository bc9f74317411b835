package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
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
	staying := launch(t, s)
	testserver.Undisturbed(t, 200*time.Millisecond, func() error { return terminatedUnderLoad(t, launch(t, s), staying) })
}

func terminatedUnderLoad(t *testing.T, leaving, staying *process) error {
	t.Helper()
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
				if got, err := leaving.place(t, voucher.ID, user); err == nil {
					c.note(t, user, got)
				}
			}
		})
	}
	c.afterSales(t, 200)
	err := leaves(t, leaving, voucher.ID)
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
	return err
}

// leaves terminates a program. It says that it is not ready, sells for another moment, in which load balancers
// notice, and ends in time.
func leaves(t *testing.T, p *process, voucherID string) error {
	t.Helper()
	began := time.Now()
	check.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	for p.status(t, "/readyz") != http.StatusServiceUnavailable {
		select {
		case <-p.exited:
			return errors.New("it ended without a word that it is not ready")
		case <-time.After(5 * time.Millisecond):
		}
	}
	off := time.Since(began)
	got, err := p.place(t, voucherID, p.user(-1))
	switch ended := endsInTime(p, began); {
	case off > 2*time.Second:
		return fmt.Errorf("readiness is off after %v", off)
	case err != nil:
		return fmt.Errorf("an order right after readiness went off: %w", err)
	case got.status != http.StatusCreated && got.status != http.StatusAccepted:
		return fmt.Errorf("an order right after readiness went off: %d %s", got.status, got.body)
	default:
		return ended
	}
}

// endsInTime demands that a program that was terminated ends well, and in time.
func endsInTime(p *process, terminated time.Time) error {
	<-p.exited
	if took, code := time.Since(terminated), p.cmd.ProcessState.ExitCode(); took > 10*time.Second || code != 0 {
		return fmt.Errorf("it ended after %v with %d", took, code)
	}
	return nil
}

// Neither a client that never finishes its request, nor a profile that runs, nor
// a database that hangs keeps a stop from ending in time.
func TestTerminatedWhileEverythingHangs(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	s := onServers(t).with(settings{"SECKILL_DATABASE_DSN": database.DSN("seckill")})
	testserver.Undisturbed(t, 200*time.Millisecond, func() error { return terminatedWhileEverythingHangs(t, launch(t, s), database) })
}

func terminatedWhileEverythingHangs(t *testing.T, a *process, database *testserver.Server) error {
	t.Helper()
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
		_, _ = a.place(t, voucher.ID, a.user(1)) // it is cut off, too
	}()
	until(t, 20*time.Second, "the profile runs", func() bool {
		got, err := send(a.client, http.MethodGet, a.ops+"/debug/pprof/goroutine?debug=1", "", nil)
		return err == nil && strings.Contains(string(got.body), "pprof.Profile")
	})
	began := time.Now()
	check.Must(t, a.cmd.Process.Signal(syscall.SIGTERM))
	ended := endsInTime(a, began)
	<-profiled
	<-bought
	return ended
}
