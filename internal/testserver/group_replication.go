package testserver

import (
	"context"
	"fmt"
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
	ports, err := takePorts(members)
	t.Cleanup(func() {
		for _, p := range ports {
			p.release()
		}
	})
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	g := &group{between: ports}
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
	return engine{
		program: configFile(filepath.Join("engines", "group-replication", "node")),
		environ: []string{"MYSQL_HOME=" + mysqlHome()},
		prepare: process.template.copy,
		args:    func(s *Server) []string { return g.args(number, s) },
		ready: func(ctx context.Context, s *Server) error {
			if err := groupReady(ctx, s); err != nil {
				return err
			}
			g.begun.Store(true)
			return nil
		},
	}
}

func (g *group) args(number int, s *Server) []string {
	addresses := make([]string, len(g.between))
	for i := range g.between {
		addresses[i] = g.Addr(i)
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

// Addr is where the other members find one, not its clients.
func (g *group) Addr(number int) string {
	return loopback + ":" + strconv.Itoa(g.between[number].number)
}

// groupReady waits until the member takes part.
func groupReady(ctx context.Context, s *Server) error {
	if err := mariadbReady(ctx, s); err != nil {
		return err
	}
	db, err := connect(s.AdminDSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	var state string
	const own = "SELECT member_state FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid"
	if err := db.QueryRowContext(ctx, own).Scan(&state); err != nil {
		return fmt.Errorf("ask the member on %s: %w", s.Addr(), err)
	}
	if state != "ONLINE" {
		return fmt.Errorf("the member on %s is %s", s.Addr(), state)
	}
	return nil
}
