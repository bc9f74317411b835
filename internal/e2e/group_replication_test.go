//go:build engines

package e2e_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
)

// groupPrimary is the member that a member takes for the primary and that takes writes; nil when there is none.
func groupPrimary(t *testing.T, members []*testserver.Server, asked *testserver.Server) *testserver.Server {
	t.Helper()
	var port int
	const primary = "SELECT member_port FROM performance_schema.replication_group_members WHERE member_role = 'PRIMARY' AND member_state = 'ONLINE'"
	if askMember(t, asked, primary, &port) != nil {
		return nil
	}
	for _, member := range members {
		if member.Port() == port && takesWrites(t, member) {
			return member
		}
	}
	return nil
}

// takesWrites asks the member itself.
func takesWrites(t *testing.T, member *testserver.Server) bool {
	t.Helper()
	var readOnly bool
	return askMember(t, member, "SELECT @@super_read_only", &readOnly) == nil && !readOnly
}

// askMember asks a member for one value, as the administrator.
func askMember(t *testing.T, member *testserver.Server, question string, answer any) error {
	t.Helper()
	db := check.Value(sql.Open("mysql", member.AdminDSN("")))(t)
	defer db.Close()
	return db.QueryRowContext(t.Context(), question).Scan(answer)
}

// others are the members but one.
func others(members []*testserver.Server, but *testserver.Server) []*testserver.Server {
	return slices.DeleteFunc(slices.Clone(members), func(member *testserver.Server) bool { return member == but })
}

// TestGroupReplication: two instances sell through the primary of three members, exactly; the primary dies during a
// sale and stays dead, and what the service adds to the group's own election is measured; the majority is lost and a
// new group forced; the dead come back.
//
//nolint:paralleltest // members that elect by time-outs need the machine for themselves
func TestGroupReplication(t *testing.T) {
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			members := testserver.GroupReplication(t, 3)
			s := onServers(t)
			if mode == "async" {
				s = asyncOnServers(t)
			}
			a := launch(t, s.with(settings{"SECKILL_DATABASE_DSN": membersDSN(members, 0)})).app
			b := launch(t, s.with(settings{"SECKILL_DATABASE_DSN": membersDSN(members, 1)})).app // a secondary is its first
			exact := func(stock, from int) {
				voucher := a.onSale(t, stock)
				c := newCrowd(a, voucher.ID, b)
				c.buy(t, users(a, from, stock+stock/2), 16)
				if mode == "async" {
					b.quiet(t, voucher.ID, settlement)
				}
				sold(t, b, voucher.ID, c.told, stock)
			}
			exact(300, 0)

			// The primary dies in the middle of a sale, and stays dead.
			dead := groupPrimary(t, members, members[0])
			check.Equal(t, "the primary", dead, members[0])
			flows := []*flow{a.flowing(t, a.onSale(t, 100_000).ID, 3, a.user), b.flowing(t, b.onSale(t, 100_000).ID, 3, b.user)}
			for _, f := range flows {
				f.sold(t, ordersBefore(t))
			}
			killed := time.Now()
			dead.Kill()
			alive := others(members, dead)
			var primary *testserver.Server
			until(t, time.Minute, "another primary takes writes", func() bool {
				primary = groupPrimary(t, members, alive[0])
				return primary != nil && primary != dead
			})
			elected := time.Now()
			for _, f := range flows {
				f.sold(t, ordersBefore(t))
			}
			for i, f := range flows {
				f.failedOver(t, fmt.Sprintf("%s, instance %d", mode, i), killed, elected)
				f.conservedFlow(t)
			}

			// The secondary dies too: the primary is there, reaches no majority, and the service says so.
			last := a.onSale(t, 200)
			c := newCrowd(a, last.ID, b)
			var load sync.WaitGroup
			load.Go(func() { c.buy(t, users(a, 300_000, 250), 8) })
			c.afterSales(t, 20)
			lost := time.Now()
			others(alive, primary)[0].Kill()
			until(t, time.Minute, "readiness tells that no order becomes a row", func() bool {
				ready, err := send(a.client, http.MethodGet, a.url+"/readyz", "", nil)
				if err != nil {
					return false
				}
				said := decode[struct{ Checks map[string]string }](t, ready).Checks["database"]
				return said != "ok" && (mode == "async" || ready.status == http.StatusServiceUnavailable)
			})
			t.Logf("%s: not ready %.1f s after the majority was lost", mode, time.Since(lost).Seconds())
			until(t, time.Minute, "the member gives up what waits", func() bool { return !takesWrites(t, primary) })
			for _, statement := range []string{ // what an operator does who is sure that the others are dead
				"STOP GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = ON",
				"START GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = OFF",
			} {
				onMember(t, primary, statement)
			}
			load.Wait()
			if mode == "async" {
				b.quiet(t, last.ID, settlement)
			}
			sold(t, b, last.ID, c.told, 200)

			// The dead come back as secondaries.
			for _, member := range others(members, primary) {
				member.Start()
			}
			until(t, time.Minute, "both are ready", func() bool {
				return a.status(t, "/readyz") == http.StatusOK && b.status(t, "/readyz") == http.StatusOK
			})
			check.Equal(t, "the primary", groupPrimary(t, members, dead), primary)
			exact(100, 400_000)
		})
	}
}

// The script in deployments/engines starts a group that the product sells from.
func TestTheEngineOfGroupReplicationStarts(t *testing.T) {
	t.Parallel()
	script := exec.Command("../../deployments/engines/group-replication/run")
	script.Env = append(os.Environ(), "MYSQL_HOME="+os.Getenv("TESTSERVER_MYSQL"))
	said := &output{}
	script.Stdout, script.Stderr = said, said
	ended, err := testserver.StartTied(script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := script.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stop: %v\n%s", err, said)
		}
		<-ended
	})
	var dsn string
	until(t, 3*time.Minute, "it says where it is", func() bool {
		if found := regexp.MustCompile(`SECKILL_DATABASE_DSN='(.*)'`).FindStringSubmatch(said.String()); found != nil {
			dsn = found[1]
		}
		return dsn != ""
	})
	a := start(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": dsn}))
	if got, err := a.place(t, a.onSale(t, 1).ID, a.user(1)); err != nil || got.status != http.StatusCreated {
		t.Errorf("%d %s %v", got.status, got.body, err)
	}
}
