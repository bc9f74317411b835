package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"seckill/internal/embedded"
	"seckill/repository"
)

// quorumSize is the number of instances of the quorum rows: the smallest that
// survives the loss of one.
const quorumSize = 3

// environment is where a run takes place, and what it has to clean up.
type environment struct {
	site      site
	db        *repository.Database
	ownRedis  bool // the single instance was started for the run
	ownQuorum bool
	closers   []func(context.Context) error // called last first
}

func openEnvironment(ctx context.Context, o Options) (_ *environment, err error) {
	e := &environment{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close(ctx))
		}
	}()
	id := newID()
	e.site.Prefix = "seckill:lab:" + id + ":"
	if err := e.openRedis(ctx, o.Redis); err != nil {
		return nil, err
	}
	return e, e.openDatabase(ctx, o.DSN, id)
}

func (e *environment) openRedis(ctx context.Context, urls []string) error {
	for _, url := range urls {
		if err := ping(ctx, url); err != nil {
			return err
		}
		// Locks keep some of their keys under longer names, which contain the
		// prefix and so the run's id. No other key does.
		e.onClose(func(ctx context.Context) error { return removeKeys(ctx, url, "*"+e.site.Prefix+"*") })
	}
	e.ownRedis, e.ownQuorum = len(urls) == 0, len(urls) < quorumSize
	if e.ownQuorum {
		for range quorumSize {
			server, err := embedded.StartRedis()
			if err != nil {
				return err
			}
			e.onClose(func(context.Context) error { server.Close(); return nil })
			e.site.Quorum = append(e.site.Quorum, server.URL())
		}
	} else {
		e.site.Quorum = urls
	}
	e.site.Redis = e.site.Quorum[0]
	if len(urls) > 0 {
		e.site.Redis = urls[0]
	}
	return nil
}

func ping(ctx context.Context, url string) error {
	client, err := newClient(url, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("reach Redis at %s: %w", client.Options().Addr, err)
	}
	return nil
}

func (e *environment) openDatabase(ctx context.Context, dsn, id string) error {
	if dsn == "" {
		dir, err := os.MkdirTemp("", "seckill-lab-")
		if err != nil {
			return fmt.Errorf("make a directory for SQLite: %w", err)
		}
		e.onClose(func(context.Context) error { return os.RemoveAll(dir) })
		e.site.SQLite = filepath.Join(dir, "lab.db")
	} else {
		own, drop, err := ownSchema(ctx, dsn, id)
		if err != nil {
			return err
		}
		e.onClose(drop)
		e.site.DSN = own
	}
	db, err := openDatabase(ctx, e.site)
	if err != nil {
		return err
	}
	e.db = db
	e.onClose(func(context.Context) error { return db.Close() })
	return nil
}

// has says whether what a strategy needs is there.
func (e *environment) has(b backing) bool { return b != onMySQL || e.site.DSN != "" }

// place names where a strategy runs, for the table.
func (e *environment) place(b backing) string {
	own := map[bool]string{true: "embedded", false: "redis"}
	switch b {
	case onRedis:
		return own[e.ownRedis]
	case onQuorum:
		return fmt.Sprintf("%s ×%d", own[e.ownQuorum], quorumSize)
	case onSQL:
		if e.site.DSN == "" {
			return "sqlite"
		}
		return "mysql"
	case onMySQL:
		return "mysql"
	}
	return ""
}

func (e *environment) onClose(f func(context.Context) error) { e.closers = append(e.closers, f) }

// cleanUpBudget bounds the removal of what the run made, on a context of its
// own: a run that was interrupted cleans up as well.
const cleanUpBudget = 20 * time.Second

func (e *environment) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBudget)
	defer cancel()
	var errs []error
	for _, f := range slices.Backward(e.closers) {
		errs = append(errs, f(ctx))
	}
	e.closers = nil
	return errors.Join(errs...)
}

// scanBatch is how many keys one SCAN looks at: a fraction of a millisecond, so
// that a server in use is not held up.
const scanBatch = 1000

// removeKeys removes keys from a server that lives on.
func removeKeys(ctx context.Context, url, pattern string) error {
	client, err := newClient(url, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	var found []string
	for keys := client.Scan(ctx, 0, pattern, scanBatch).Iterator(); ; {
		if !keys.Next(ctx) {
			if err := keys.Err(); err != nil {
				return fmt.Errorf("find the lab's keys: %w", err)
			}
			break
		}
		found = append(found, keys.Val())
	}
	_, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range found {
			p.Unlink(ctx, key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove the lab's keys: %w", err)
	}
	return nil
}

// site is where a run takes place. A child process is told it on its standard
// input, because it may hold passwords.
type site struct {
	Prefix string   `json:"prefix"` // of every key; unique to the run
	Redis  string   `json:"redis"`  // the single instance
	Quorum []string `json:"quorum"` // three independent ones
	DSN    string   `json:"dsn"`    // of the run's own schema; empty without MySQL
	SQLite string   `json:"sqlite"` // a file of the run's own; empty with MySQL
}

func (s site) key(name string) string { return s.Prefix + name }

// ioTimeout bounds one answer of Redis: far longer than a healthy one takes on
// a busy machine, far shorter than the run.
const ioTimeout = 10 * time.Second

// newClient opens a client whose commands are counted, unless count is nil.
func newClient(url string, count *commandCount) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		// The parser's message may repeat a password.
		return nil, errors.New("a Redis URL does not parse: redis://[user:password@]host:port/db is expected")
	}
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = ioTimeout, ioTimeout, ioTimeout
	options.ContextTimeoutEnabled = true
	options.DisableIdentity = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if count != nil {
		dial := redis.NewDialer(options)
		options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: conn, count: count}, nil
		}
	}
	return redis.NewClient(options), nil
}

// schemaPrefix begins the name of every schema the lab makes.
const schemaPrefix = "seckill_lab_"

// What MySQL answers to an account that may not make a schema.
const (
	deniedSchema  = 1044
	deniedCommand = 1142
)

// ownSchema makes a schema for this run alone, so that nothing in the one the
// DSN names is touched. It returns the DSN of the new one and what drops it.
func ownSchema(ctx context.Context, dsn, id string) (own string, drop func(context.Context) error, err error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		// The parser's message may repeat a piece of the password.
		return "", nil, errors.New("the DSN does not parse: user:password@tcp(host:port)/schema is expected")
	}
	name := schemaPrefix + id
	config.DBName = ""
	statement := func(ctx context.Context, text string) error {
		// An interrupted CREATE may have happened, and no one could tell.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBudget)
		defer cancel()
		db, err := sql.Open("mysql", config.FormatDSN())
		if err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, text)
		return errors.Join(err, db.Close())
	}
	if err := statement(ctx, "CREATE DATABASE "+name); err != nil {
		hint := ""
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok && slices.Contains([]uint16{deniedSchema, deniedCommand}, e.Number) {
			hint = fmt.Sprintf(" (GRANT ALL ON `%s%%`.* lets an account do that)", schemaPrefix)
		}
		return "", nil, fmt.Errorf("make a schema of the lab's own%s: %w", hint, err)
	}
	drop = func(ctx context.Context) error {
		if err := statement(ctx, "DROP DATABASE "+name); err != nil {
			return fmt.Errorf("drop the lab's schema %s: %w", name, err)
		}
		return nil
	}
	config.DBName = name
	return config.FormatDSN(), drop, nil
}

// openDatabase opens the run's database with the tables of the product, that of
// its MySQL locks among them, and the lab's own.
func openDatabase(ctx context.Context, s site) (*repository.Database, error) {
	db, err := repository.Open(ctx, repository.Options{DSN: s.DSN, SQLiteFile: s.SQLite})
	if err != nil {
		return nil, err
	}
	err = db.Migrate(ctx)
	if err == nil {
		err = createAccounts(ctx, db)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// isMySQL is for the few statements that SQLite does not have.
func isMySQL(db *repository.Database) bool { return db.Dialect() == "mysql" }
