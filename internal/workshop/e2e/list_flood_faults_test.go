//go:build faults

//part:siege

package e2e_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// catalogue is a deployment with thousands of vouchers on sale. The program runs in a process of its own, as it is shipped:
// a flood that the race detector slows down as well says nothing of it.
type catalogue struct {
	*app

	db *sql.DB
}

const shelved = 5000

// fill makes vouchers like one, some thousand at once.
func (s catalogue) fill(t *testing.T, id, second string, like model.Voucher) {
	t.Helper()
	const columns = "title, description, price, face_value, currency, stock, remaining, begin_at, end_at, state, version, revision"
	for begin := 0; begin < shelved; begin += 1000 {
		_, err := s.db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO vouchers (id, created_at, %s) "+
			"WITH RECURSIVE numbers(n) AS (SELECT %d UNION ALL SELECT n + 1 FROM numbers WHERE n < %d) "+
			"SELECT %s, v.created_at - %s, %s FROM numbers n JOIN vouchers v ON v.id = '%s'",
			columns, begin+1, begin+1000, id, second, columns, like.ID))
		check.Must(t, err)
	}
}

func onMariaDB(t *testing.T) catalogue {
	t.Helper()
	server := testserver.MariaDB(t)
	db := check.Value(sql.Open("mysql", server.DSN(testserver.DefaultSchema)))(t)
	t.Cleanup(func() { _ = db.Close() })
	s := catalogue{launch(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": server.DSN(testserver.DefaultSchema)})).app, db}
	s.fill(t, "CONCAT('shelf', n.n)", "INTERVAL n.n SECOND", s.onSale(t, 1))
	return s
}

func onSQLite(t *testing.T) catalogue {
	t.Helper()
	deployment := embeddedSettings(t)
	s := catalogue{app: launch(t, deployment).app}
	s.db = check.Value(sql.Open("sqlite", "file:"+filepath.Join(deployment["SECKILL_DATA_DIR"], "seckill.db")+"?_pragma=busy_timeout(5000)"))(t)
	t.Cleanup(func() { _ = s.db.Close() })
	s.fill(t, "'shelf' || n.n", "1000000 * n.n", s.onSale(t, 1))
	return s
}

// flood asks for lists from many connections until it is told to stop, each time for what
// query says. It returns how many answers of each status there were.
func (s catalogue) flood(t *testing.T, connections int, query func(n int64) string) (stop func() map[int]int64) {
	t.Helper()
	var over atomic.Bool
	var asked atomic.Int64
	var mu sync.Mutex
	answers := map[int]int64{}
	var crowd sync.WaitGroup
	for range connections {
		crowd.Go(func() {
			for !over.Load() {
				got, err := s.Send(http.MethodGet, "/vouchers?"+query(asked.Add(1)), "", nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				answers[got.Status]++
				mu.Unlock()
			}
		})
	}
	stop = sync.OnceValue(func() map[int]int64 {
		over.Store(true)
		crowd.Wait()
		return answers
	})
	t.Cleanup(func() { stop() })
	return stop
}

// TestListsDoNotStopTheSale: strangers ask for lists as fast as they can, for the same page
// or with cursors that they make up, and everybody buys meanwhile.
func TestListsDoNotStopTheSale(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) catalogue{"MariaDB": onMariaDB, "SQLite": onSQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			const connections, purchases, buyers = 100, 60, 4
			voucher := s.onSale(t, purchases)
			s.connect(t, connections)
			for kind, query := range map[string]func(n int64) string{
				"same page": func(int64) string { return "phase=sold_out" },
				"cursors": func(n int64) string {
					phase := model.Phases()[n%5]
					return fmt.Sprintf("phase=%s&cursor=%s", phase, model.Cursor{At: voucher.BeginAt.Add(time.Duration(n) * time.Second), ID: "x"})
				},
			} {
				stop := s.flood(t, connections, query)
				check.Volley(buyers, func(b int) {
					for n := range purchases / buyers / 2 {
						s.buys(t, voucher.ID, s.user(1000*len(kind)+100*b+n))
					}
				})
				lists := stop()
				t.Logf("%s: lists %v", kind, lists)
				if lists[http.StatusOK] == 0 || lists[http.StatusOK]+lists[http.StatusServiceUnavailable] != sum(lists) {
					t.Errorf("%s: the lists were answered %v", kind, lists)
				}
			}
			if audit := s.Audit(t, voucher.ID); !audit.Balanced {
				t.Errorf("%+v", audit)
			}
		})
	}
}

func sum(counts map[int]int64) (all int64) {
	for _, count := range counts {
		all += count
	}
	return all
}

// TestListsHoldNoConnectionOfSales: every connection of lists waits for the database. A
// purchase does not, and one more list is told in time to come again.
func TestListsHoldNoConnectionOfSales(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	w := newWire(t, server.Addr())
	a := start(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": "seckill@tcp(" + w.addr() + ")/" + testserver.DefaultSchema}))
	voucher := a.onSale(t, 20)
	admin := a.Admin(t)
	for range 4 { // as many as there are for lists
		came, release := w.holdAt(down, "FORCE INDEX (vouchers_")
		defer release()
		a.later(t, http.MethodGet, "/admin/vouchers", admin)
		check.Receive(t, "a list at the database", came)
	}
	further := a.later(t, http.MethodGet, "/vouchers", "")
	for n := range 5 {
		a.buys(t, voucher.ID, a.user(n))
	}
	if got := check.Receive(t, "the answer to one list more", further); got.Status != http.StatusServiceUnavailable || got.Code() != model.CodeUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("one list more: %d %s", got.Status, got.Body)
	}
	// The held ones end by themselves, and lists are read again.
	check.Eventually(t, "lists are read again", func() bool {
		return a.Call(t, http.MethodGet, "/admin/vouchers", admin, nil).Status == http.StatusOK
	})
}
