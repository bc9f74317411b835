package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"seckill/internal/embedded"
	"seckill/internal/poll"
	"seckill/repository/sqldb"
)

// quorumSize is the number of instances of the quorum rows: the smallest that survives the loss of one.
const quorumSize = 3

// site is where a run takes place. A child process is told it on its standard input.
type site struct {
	Prefix string   `json:"prefix"` // of every key; unique to the run
	Redis  string   `json:"redis"`  // the single instance
	Quorum []string `json:"quorum"` // three independent ones
	DSN    string   `json:"dsn"`    // empty without MySQL
}

func (l *lab) open(ctx context.Context) {
	l.site.Prefix = "seckill:lab:" + newID() + ":"
	l.places = map[backing]string{
		onRedis: "redis", onQuorum: fmt.Sprintf("redis ×%d", quorumSize), onSQL: "mysql", onMySQL: "mysql",
	}
	l.openRedis(ctx)
	l.openDatabase(ctx)
}

// openRedis starts three instances: redis-servers where installed, else embedded ones. The last is the single one too.
func (l *lab) openRedis(ctx context.Context) {
	real := l.own && installed("redis-server") != ""
	for range quorumSize {
		var url string
		if real {
			url = "redis://" + l.undo.redis(ctx, "").addr
		} else {
			server := got(embedded.StartRedis())("start a Redis")
			l.undo.add(func(context.Context) { server.Close() })
			url = server.URL()
		}
		l.site.Quorum = append(l.site.Quorum, url)
		l.site.Redis = url
	}
	if !real {
		l.places[onRedis], l.places[onQuorum] = "embedded", fmt.Sprintf("embedded ×%d", quorumSize)
	}
	l.single = newClient(l.site.Redis)
	l.undo.closes(l.single)
}

// openDatabase makes the tables of the product, that of its MySQL locks among them, and the lab's own.
func (l *lab) openDatabase(ctx context.Context) {
	options := sqldb.Options{DSN: l.dsn}
	if l.own {
		options.DSN = l.ownDatabase(ctx)
	}
	if options.DSN == "" {
		l.places[onSQL] = "sqlite"
		options.SQLiteFile = filepath.Join(l.undo.dir(), "lab.db")
	}
	l.site.DSN = options.DSN
	l.db = got(sqldb.Open(ctx, options))("open the database")
	l.undo.closes(l.db)
	must("make the product's tables", l.db.Migrate(ctx))
	_, err := l.db.SQL().ExecContext(ctx, accounts)
	must("make the lab's table", err)
}

// ownDatabase starts a MariaDB for the run, reached by a socket alone. It returns "" where none is installed.
func (l *lab) ownDatabase(ctx context.Context) (dsn string) {
	install, program := installed("mariadb-install-db"), installed("mariadbd")
	if install == "" || program == "" {
		return ""
	}
	dir := l.undo.dir()
	socket := filepath.Join(dir, "s")
	shared := []string{
		"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--tmpdir=" + dir,
		"--user=" + got(user.Current())("name the user").Username,
	}
	made := exec.CommandContext(ctx, install, //nolint:gosec // a program of the system
		append(slices.Clone(shared), "--auth-root-authentication-method=normal", "--skip-test-db")...)
	said, err := made.CombinedOutput()
	must("make a MariaDB: "+string(said), err)
	server := l.undo.start(program, append(shared, "--socket="+socket, "--skip-networking", "--skip-log-bin",
		"--innodb-flush-log-at-trx-commit=2", "--pid-file="+filepath.Join(dir, "pid"))...)
	dsn = "root@unix(" + socket + ")/"
	db := got(sql.Open("mysql", dsn))("open the database")
	defer db.Close()
	server.ready(ctx, db.PingContext)
	_, err = db.ExecContext(ctx, "CREATE DATABASE lab")
	must("make a schema", err)
	return dsn + "lab"
}

// key names a key of the lock or the account.
func (s setup) key(name string) string { return s.Site.Prefix + s.Name + ":" + name }

// connect opens a client of a lock's own.
func (s setup) connect(url string) *redis.Client {
	client := newClient(url)
	s.undo.closes(client)
	return client
}

// ioTimeout bounds one answer of Redis: far longer than a healthy one takes, far shorter than the run.
const ioTimeout = 10 * time.Second

func newClient(url string) *redis.Client {
	options := got(redis.ParseURL(url))("read the URL of a Redis")
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = ioTimeout, ioTimeout, ioTimeout
	options.ContextTimeoutEnabled = true
	options.DisableIdentity = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(options)
}

// cleanup is what has to be undone, the last first.
type cleanup []func(context.Context)

func (c *cleanup) add(undo func(context.Context)) { *c = append(*c, undo) }

func (c *cleanup) closes(what io.Closer) { c.add(func(context.Context) { stop(what.Close()) }) }

// cleanUpBudget bounds the removal of what was made, also of a run that was interrupted.
const cleanUpBudget = 20 * time.Second

func (c *cleanup) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBudget)
	defer cancel()
	var errs []error
	for _, undo := range slices.Backward(*c) {
		errs = append(errs, try(func() { undo(ctx) }))
	}
	return errors.Join(errs...)
}

// dir makes a directory.
func (c *cleanup) dir() string {
	dir := got(os.MkdirTemp("", "lab-"))("make a directory") // short: a socket's path is bounded
	c.add(func(context.Context) { stop(os.RemoveAll(dir)) })
	return dir
}

// server is a process of the lab's own.
type server struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
}

// start runs a server until it is undone.
func (c *cleanup) start(program string, args ...string) server {
	s := server{exec.Command(program, args...), make(chan struct{})} //nolint:gosec,noctx // of the system; ended by undo
	must("start "+program, s.cmd.Start())
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
	c.add(func(context.Context) {
		_ = s.cmd.Process.Kill() // its data go too
		<-s.ended
	})
	return s
}

// startPoll is between two looks at a server that starts.
const startPoll = 20 * time.Millisecond

// errServerEnded: another program may have taken its port meanwhile.
var errServerEnded = errors.New("the server has ended")

// ready waits until the server answers.
func (s server) ready(ctx context.Context, ask func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, rowBudget)
	defer cancel()
	var last error
	err := poll.Until(ctx, startPoll, func() (bool, error) {
		select {
		case <-s.ended:
			return false, errServerEnded
		default:
			last = ask(ctx)
			return last == nil, nil
		}
	})
	if err != nil {
		stop(fmt.Errorf("wait for %s: %w: %w", s.cmd.Path, err, cmp.Or(last, err)))
	}
}

// installed finds a program, also where only root looks.
func installed(name string) string {
	for _, place := range []string{name, filepath.Join("/usr/sbin", name)} {
		if path, err := exec.LookPath(place); err == nil {
			return path
		}
	}
	return ""
}

// promoted: the line between a primary and its replica fails, A locks, and the replica is made the primary, which B
// asks. The old one is gone, or, in a split brain, lives and takes writes.
func promoted(gone bool) attack {
	name := "split brain"
	if gone {
		name = "replica promoted"
	}
	return attack{name: name, stock: 1, lapses: true, run: func(a *arena) {
		var undo cleanup
		err := try(func() {
			old := undo.redis(a.ctx, "")
			replica := undo.redis(a.ctx, old.addr)
			undo.redis(a.ctx, replica.addr)                                                              // stands behind the new primary
			must("cut the line to the replica", replica.client.ReplicaOf(a.ctx, "127.0.0.1", "1").Err()) // nobody is there
			others := a.setup.Site.Quorum[1:]
			at := func(r redisServer) func(*setup) {
				return func(s *setup) {
					s.Site.Redis = "redis://" + r.addr
					s.Site.Quorum = append([]string{s.Site.Redis}, others...)
				}
			}
			first := a.stands("A", []point{pointRead}, at(old))
			if a.strategy.on == onQuorum {
				a.joined(others)
			}
			if gone {
				_ = old.cmd.Process.Kill()
			}
			must("promote the replica", replica.client.ReplicaOf(a.ctx, "NO", "ONE").Err())
			second := a.worker("B", at(replica))
			second.to(a.forbidden(), pointRead)
			a.finish(first, second)
		})
		stop(errors.Join(err, undo.run(a.ctx)))
	}}
}

// joined waits until all of those instances have the lock. A majority has it with one of them, and the promoted
// instance and the other would be a majority too: what RedLock survives is a promotion of one of more than it needs.
func (a *arena) joined(urls []string) {
	ctx, cancel := context.WithTimeout(a.ctx, certain)
	defer cancel()
	for _, url := range urls {
		client := newClient(url)
		defer client.Close()
		must("wait until each instance has the lock", poll.Until(ctx, startPoll, func() (bool, error) {
			n, err := client.Exists(ctx, a.setup.key("lock")).Result()
			return n == 1, err
		}))
	}
}

// redisServer is one of the lab's own.
type redisServer struct {
	addr string
	server
	client *redis.Client
}

// redis starts a server, a replica of primary if given. On a port taken meanwhile it tries another.
func (c *cleanup) redis(ctx context.Context, primary string) (s redisServer) {
	var err error
	for range 3 {
		if err = try(func() { s = c.redisOnce(ctx, primary) }); !errors.Is(err, errServerEnded) {
			break
		}
	}
	stop(err)
	return s
}

func (c *cleanup) redisOnce(ctx context.Context, primary string) redisServer {
	program := installed("redis-server")
	if program == "" {
		stop(errors.New("redis-server is not installed"))
	}
	free := got(net.Listen("tcp", "127.0.0.1:0"))("find a port") //nolint:noctx // at once
	addr := free.Addr().String()
	_, port, _ := strings.Cut(addr, ":")
	_ = free.Close()
	want, args := "role:master", []string{
		"--dir", c.dir(), // a replica writes its first copy there
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--repl-diskless-sync-delay", "0", "--loglevel", "warning",
	}
	if _, port, replica := strings.Cut(primary, ":"); replica {
		want, args = "master_link_status:up", append(args, "--replicaof", "127.0.0.1", port)
	}
	s := redisServer{addr, c.start(program, args...), newClient("redis://" + addr)}
	c.closes(s.client)
	s.ready(ctx, func(ctx context.Context) error {
		info, err := s.client.Info(ctx).Result()
		itself := fmt.Sprintf("process_id:%d\r", s.cmd.Process.Pid) // and not one that was faster
		if err == nil && (!strings.Contains(info, want) || !strings.Contains(info, itself)) {
			err = fmt.Errorf("it is not %s yet", want)
		}
		return err
	})
	return s
}
