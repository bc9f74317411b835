package testserver

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// GroupReplication starts members of one single-primary group of MySQL 8 with
// deployments/engines/group-replication/node, as durable as in production. The first one begins as the primary. Each
// has DefaultSchema, and the accounts of MariaDB. A member that was killed comes back with Start while the others have
// a majority. It needs TESTSERVER_MYSQL.
func GroupReplication(t testing.TB, members int) []*Server {
	t.Helper()
	if !OnMySQL() {
		t.Fatal("testserver: TESTSERVER_MYSQL does not name a MySQL 8, see `make deps-mysql8`")
	}
	g := &group{between: takePorts(t, members)}
	var servers []*Server
	for number := range members {
		servers = append(servers, start(t, g.engine(number), nil))
	}
	return servers
}

// group is a group: the ports between its members.
type group struct {
	between []port
	begun   atomic.Bool // the first member is in it
}

func (g *group) engine(number int) engine {
	online := memberReady("SELECT member_state FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid", "ONLINE")
	return engine{
		program: configFile(filepath.Join("engines", "group-replication", "node")),
		environ: []string{"MYSQL_HOME=" + string(testsHome())},
		prepare: testsHome().database().prepare,
		args:    func(s *Server) []string { return g.args(number, s) },
		ready: func(ctx context.Context, s *Server) error {
			err := online(ctx, s)
			if err == nil {
				g.begun.Store(true)
			}
			return err
		},
	}
}

func (g *group) args(number int, s *Server) []string {
	addresses := make([]string, len(g.between))
	for i, p := range g.between {
		addresses[i] = loopback + ":" + strconv.Itoa(p.number)
	}
	args := []string{
		s.dir, strconv.Itoa(s.port.number), strconv.Itoa(g.between[number].number), strings.Join(addresses, ","),
		"--group-replication-message-cache-size=134217728", // the least that it takes
	}
	args = append(args, smallMySQL()...)
	if number == 0 && !g.begun.Load() {
		args = append(args, "--group-replication-bootstrap-group=ON")
	}
	return append(args, s.extra...)
}
