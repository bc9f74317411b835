//go:build faults

//part:mysql8

package e2e_test

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func takesWrites(t *testing.T, member *testserver.Server) bool {
	t.Helper()
	readOnly, err := askMember[bool](t, member, "SELECT @@super_read_only")
	return err == nil && !readOnly
}

// TestGroupReplication: two instances sell through the primary of three, and measure what they add to its election.
//
//nolint:paralleltest // members that elect by time-outs need the machine for themselves
func TestGroupReplication(t *testing.T) {
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			members := testserver.GroupReplication(t, 3)
			databases{
				members: members,
				serves: func(t *testing.T, member, seen *testserver.Server) bool {
					const primary = "SELECT member_port FROM performance_schema.replication_group_members WHERE member_role = 'PRIMARY' AND member_state = 'ONLINE'"
					port, err := askMember[int](t, seen, primary)
					return err == nil && port == member.Port() && takesWrites(t, member)
				},
				alone: func(t *testing.T, member *testserver.Server) bool { return !takesWrites(t, member) },
				anew: []string{
					"STOP GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = ON",
					"START GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = OFF",
				},
				// The second proxy lists a secondary first, and does not use it.
			}.survive(t, onPair(t, mode, members))
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
	ended := check.Value(testserver.StartTied(script))(t)
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
	got, err := a.Place(t, a.onSale(t, 1).ID, a.user(1))
	check.That(t, err == nil && got.Status == http.StatusCreated, "%d %s %v", got.Status, got.Body, err)
}
