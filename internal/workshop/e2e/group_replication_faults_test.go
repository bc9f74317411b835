//go:build faults

//part:mysql8

package e2e_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
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
			p := onPair(t, mode, members) // a secondary is the first of the second proxy, which does not use it
			voucher, c, sale := p.crowded(t, 300, 0)
			sale()
			p.exact(t, voucher, c)

			// The primary dies in the middle of a sale, and stays dead.
			dead := groupPrimary(t, members, members[0])
			check.Equal(t, "the primary", dead, members[0])
			flows := []*flow{p.flowing(t, p.onSale(t, 100_000).ID, 3, p.user), p.other.flowing(t, p.onSale(t, 100_000).ID, 3, p.other.user)}
			for _, f := range flows {
				f.moreSales(t, ordersBefore(t))
			}
			killed := time.Now()
			dead.Kill()
			alive := others(members, dead)
			var primary *testserver.Server
			check.Patiently(t, "another primary takes writes", func() bool {
				primary = groupPrimary(t, members, alive[0])
				return primary != nil && primary != dead
			})
			elected := time.Now()
			for _, f := range flows {
				f.moreSales(t, ordersBefore(t))
			}
			for i, f := range flows {
				f.failedOver(t, fmt.Sprintf("%s, instance %d", mode, i), killed, elected)
				f.conservedFlow(t)
			}

			// The secondary dies too: the primary is there, reaches no majority, and the service says so.
			voucher, c, sale = p.crowded(t, 200, 300_000)
			c.moreSales(t, 20)
			lost := time.Now()
			others(alive, primary)[0].Kill()
			p.tellsOfNoQuorum(t)
			t.Logf("%s: not ready %.1f s after the majority was lost", mode, time.Since(lost).Seconds())
			check.Patiently(t, "the member gives up what waits", func() bool { return !takesWrites(t, primary) })
			for _, statement := range []string{ // what an operator does who is sure that the others are dead
				"STOP GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = ON",
				"START GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = OFF",
			} {
				onMember(t, primary, statement)
			}
			sale()
			p.exact(t, voucher, c)

			// The dead come back as secondaries.
			for _, member := range others(members, primary) {
				member.Start()
			}
			p.ready(t)
			p.other.ready(t)
			check.Equal(t, "the primary", groupPrimary(t, members, dead), primary)
			voucher, c, sale = p.crowded(t, 100, 400_000)
			sale()
			p.exact(t, voucher, c)
		})
	}
}

// The script in deployments/engines starts a group that the product sells from.
func TestTheEngineOfGroupReplicationStarts(t *testing.T) {
	t.Parallel()
	script := exec.Command("../../../deployments/engines/group-replication/run")
	script.Env = append(os.Environ(), "MYSQL_HOME="+os.Getenv("TESTSERVER_MYSQL"))
	said := &check.Log{}
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
	check.Patiently(t, "it says where it is", func() bool {
		if found := regexp.MustCompile(`SECKILL_DATABASE_DSN='(.*)'`).FindStringSubmatch(said.String()); found != nil {
			dsn = found[1]
		}
		return dsn != ""
	})
	a := start(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": dsn}))
	if got, err := a.Place(t, a.onSale(t, 1).ID, a.user(1)); err != nil || got.Status != http.StatusCreated {
		t.Errorf("%d %s %v", got.Status, got.Body, err)
	}
}
