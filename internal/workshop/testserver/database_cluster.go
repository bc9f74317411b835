package testserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// Galera starts members of one Galera cluster with deployments/engines/galera/node, as durable as in production. Each
// has DefaultSchema, and the accounts of MariaDB. A member that was killed comes back with Start while the others have
// quorum.
func Galera(t testing.TB, members int) []*Server {
	t.Helper()
	g := &galera{}
	for range members {
		g.between = append(g.between, takePorts(t, 3))
	}
	var servers []*Server
	for number := range members {
		servers = append(servers, start(t, g.engine(number), nil))
	}
	return servers
}

// galera is a cluster: the ports between its members.
type galera struct{ between [][]port }

// engine is a member. The first one begins the cluster, when it is started for the first time.
func (g *galera) engine(number int) engine {
	return engine{
		program: configFile(filepath.Join("engines", "galera", "node")),
		apt:     "mariadb-server",
		prepare: func(ctx context.Context, data string) error {
			server := filepath.Dir(data)
			for _, dir := range []string{server, filepath.Dir(server)} {
				if err := os.Chmod(dir, 0o711); err != nil { // a member that joins is filled by another account
					return fmt.Errorf("open the way to the data: %w", err)
				}
			}
			if number > 0 {
				return emptyDirectory(ctx, data)
			}
			return process.template.copy(ctx, data)
		},
		args:  func(s *Server) []string { return g.args(number, s) },
		ready: memberReady("SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_ready'", "ON"),
	}
}

func (g *galera) args(number int, s *Server) []string {
	var addresses []string
	for _, ports := range g.between {
		addresses = append(addresses, loopback+":"+strconv.Itoa(ports[0].number))
	}
	between := g.between[number]
	args := []string{
		s.dir, strconv.Itoa(s.port.number), fmt.Sprintf("%d:%d:%d", between[0].number, between[1].number, between[2].number),
		strings.Join(addresses, ","),
		"--innodb-log-file-size=8M", "--innodb-buffer-pool-size=64M", "--innodb-use-native-aio=OFF",
		"--innodb-buffer-pool-dump-at-shutdown=OFF", "--innodb-buffer-pool-load-at-startup=OFF",
	}
	if _, err := os.Stat(filepath.Join(s.data(), "grastate.dat")); number == 0 && errors.Is(err, os.ErrNotExist) {
		args = append(args, "--wsrep-new-cluster")
	}
	return append(args, s.extra...)
}

// memberReady waits until a member of a cluster takes part: until it answers a question about itself with a word.
func memberReady(question, word string) func(context.Context, *Server) error {
	return func(ctx context.Context, s *Server) error {
		if err := mariadbReady(ctx, s); err != nil {
			return err
		}
		db, err := connect(s.AdminDSN(""))
		if err != nil {
			return err
		}
		defer db.Close()
		var said string
		if err := db.QueryRowContext(ctx, question).Scan(&said); err != nil {
			return fmt.Errorf("ask the member on %s: %w", s.Addr(), err)
		}
		if said != word {
			return fmt.Errorf("the member on %s says %s and not %s", s.Addr(), said, word)
		}
		return nil
	}
}

// Proxied is one address for the members of a cluster, as deployments/engines/haproxy gives it. The first of them is
// used while it takes writes.
func Proxied(t testing.TB, members []*Server) *Server {
	t.Helper()
	grant := "CREATE USER IF NOT EXISTS haproxy@'127.0.0.1'"
	if OnMySQL() {
		grant += "; GRANT SELECT ON performance_schema.replication_group_members TO haproxy@'127.0.0.1'"
	}
	err := errors.New("there is no member")
	for _, member := range members { // one of them takes writes, and tells the others
		var db *sql.DB
		if db, err = connect(member.AdminDSN("") + "?multiStatements=true"); err != nil {
			continue
		}
		_, err = db.ExecContext(t.Context(), grant)
		_ = db.Close()
		if err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	return start(t, engine{
		program: configFile(filepath.Join("engines", "haproxy", "run")),
		prepare: emptyDirectory,
		args: func(s *Server) []string {
			args := []string{strconv.Itoa(s.port.number)}
			for _, member := range members {
				args = append(args, member.Addr())
			}
			return args
		},
		ready: func(ctx context.Context, s *Server) error {
			db, err := connect(s.AdminDSN(""))
			if err != nil {
				return err
			}
			defer db.Close()
			return db.PingContext(ctx)
		},
	}, nil)
}

// takePorts takes several ports for the time of a test.
func takePorts(t testing.TB, n int) (ports []port) {
	t.Helper()
	for range n {
		p, err := takePort()
		if err != nil {
			t.Fatalf("testserver: %v", err)
		}
		t.Cleanup(p.release)
		ports = append(ports, p)
	}
	return ports
}

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
