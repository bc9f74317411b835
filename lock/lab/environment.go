package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"seckill/internal/embedded"
	"seckill/repository/sqldb"
)

// quorumSize is the number of instances of the quorum rows: the smallest that survives the loss of one.
const quorumSize = 3

// site is where a run takes place. A child process is told it on its standard input, because it may hold passwords.
type site struct {
	Prefix string   `json:"prefix"` // of every key; unique to the run
	Redis  string   `json:"redis"`  // the single instance
	Quorum []string `json:"quorum"` // three independent ones
	DSN    string   `json:"dsn"`    // of the run's own schema; empty without MySQL
}

func (l *lab) open(ctx context.Context) {
	id := newID()
	l.site.Prefix = "seckill:lab:" + id + ":"
	l.places = map[backing]string{
		onRedis: "redis", onQuorum: fmt.Sprintf("redis ×%d", quorumSize), onSQL: "mysql", onMySQL: "mysql",
	}
	l.openRedis(ctx)
	l.openDatabase(ctx, id)
}

// openRedis reaches the instances given, and starts embedded ones where three are not given.
func (l *lab) openRedis(ctx context.Context) {
	urls := slices.Clone(l.redis)
	if len(urls) == 0 {
		l.places[onRedis] = "embedded"
	}
	if len(urls) < quorumSize {
		l.places[onQuorum] = fmt.Sprintf("embedded ×%d", quorumSize)
		for range quorumSize {
			server := got(embedded.StartRedis())("start a Redis")
			l.undo.add(func(context.Context) { server.Close() })
			urls = append(urls, server.URL())
		}
	}
	l.site.Redis, l.site.Quorum = urls[0], urls[len(urls)-quorumSize:]
	for _, url := range slices.Backward(urls) { // the last one is the single instance
		client := newClient(url)
		l.single = client
		l.undo.closes(client)
		must("reach Redis at "+client.Options().Addr, client.Ping(ctx).Err())
		// Locks keep some of their keys under longer names, which contain the prefix and so the run's id. No other key
		// does.
		l.undo.add(func(ctx context.Context) { removeKeys(ctx, client, "*"+l.site.Prefix+"*") })
	}
}

// openDatabase makes the run's own database, with the tables of the product, that of its MySQL locks among them, and
// the lab's own.
func (l *lab) openDatabase(ctx context.Context, id string) {
	dsn := l.dsn
	if dsn == "" && l.own {
		dsn = l.ownDatabase(ctx)
	}
	var options sqldb.Options
	if dsn == "" {
		l.places[onSQL] = "sqlite"
		options.SQLiteFile = filepath.Join(l.undo.dir(), "lab.db")
	} else {
		l.site.DSN = l.ownSchema(ctx, dsn, schemaPrefix+id)
		options.DSN = l.site.DSN
	}
	l.db = got(sqldb.Open(ctx, options))("open the database")
	l.undo.closes(l.db)
	must("make the product's tables", l.db.Migrate(ctx))
	for _, table := range tables() {
		_, err := l.db.SQL().ExecContext(ctx, table)
		must("make the lab's tables", err)
	}
}

// schemaPrefix begins the name of every schema the lab makes.
const schemaPrefix = "seckill_lab_"

// ownSchema makes a schema for this run alone, so that nothing in the one the DSN names is touched. It returns the DSN
// of the new one.
func (l *lab) ownSchema(ctx context.Context, dsn, name string) string {
	config, err := mysql.ParseDSN(dsn)
	if err != nil { // the parser's message may repeat a piece of the password
		stop(errors.New("the DSN does not parse: user:password@tcp(host:port)/schema is expected"))
	}
	config.DBName = ""
	server := got(sql.Open("mysql", config.FormatDSN()))("open the database")
	l.undo.closes(server)
	// An interrupted CREATE may have happened, and no one could tell.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBudget)
	defer cancel()
	_, err = server.ExecContext(whole, "CREATE DATABASE "+name)
	if isSQL(err, 0, deniedSchema, deniedCommand) {
		err = fmt.Errorf("GRANT ALL ON `%s%%`.* lets an account do that: %w", schemaPrefix, err)
	}
	must("make a schema of the lab's own", err)
	l.undo.add(func(ctx context.Context) {
		_, err := server.ExecContext(ctx, "DROP DATABASE "+name)
		must("drop the schema "+name, err)
	})
	config.DBName = name
	return config.FormatDSN()
}

// ownDatabase starts a MariaDB that goes with the run, reached by a socket alone. It returns "" where none is
// installed.
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
	return dsn
}

// scanBatch is how many keys one SCAN looks at: a fraction of a millisecond, so that a server in use is not held up.
const scanBatch = 1000

// removeKeys removes keys from a server that lives on.
func removeKeys(ctx context.Context, client *redis.Client, pattern string) {
	keys := client.Scan(ctx, 0, pattern, scanBatch).Iterator()
	for keys.Next(ctx) {
		must("remove the lab's keys", client.Unlink(ctx, keys.Val()).Err())
	}
	must("find the lab's keys", keys.Err())
}

// key names a key of the lock or the account.
func (s setup) key(name string) string { return s.Site.Prefix + s.Name + ":" + name }

// connect opens a client of a lock's own.
func (s setup) connect(url string) *redis.Client {
	client := newClient(url)
	s.undo.closes(client)
	return client
}

// ioTimeout bounds one answer of Redis: far longer than a healthy one takes on a busy machine, far shorter than the
// run.
const ioTimeout = 10 * time.Second

func newClient(url string) *redis.Client {
	options, err := redis.ParseURL(url)
	if err != nil { // the parser's message may repeat a password
		stop(errors.New("a Redis URL does not parse: redis://[user:password@]host:port/db is expected"))
	}
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = ioTimeout, ioTimeout, ioTimeout
	options.ContextTimeoutEnabled = true
	options.DisableIdentity = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(options)
}
