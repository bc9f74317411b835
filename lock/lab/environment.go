package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"seckill/internal/embedded"
	"seckill/repository/sqldb"
)

// quorumSize is the number of instances of the quorum rows: the smallest that
// survives the loss of one.
const quorumSize = 3

// environment is where a run takes place, and what it has to clean up.
type environment struct {
	site   site
	db     *sqldb.Database
	redis  *redis.Client // of the single instance
	places map[backing]string
	undo   cleanup
}

// site is where a run takes place. A child process is told it on its standard
// input, because it may hold passwords.
type site struct {
	Prefix string   `json:"prefix"` // of every key; unique to the run
	Redis  string   `json:"redis"`  // the single instance
	Quorum []string `json:"quorum"` // three independent ones
	DSN    string   `json:"dsn"`    // of the run's own schema; empty without MySQL
}

func openEnvironment(ctx context.Context, o Options) (e *environment, err error) {
	id := newID()
	e = &environment{
		site: site{Prefix: "seckill:lab:" + id + ":"},
		places: map[backing]string{
			onRedis: "redis", onQuorum: fmt.Sprintf("redis ×%d", quorumSize), onSQL: "mysql", onMySQL: "mysql",
		},
	}
	err = e.openRedis(ctx, o.Redis)
	if err == nil {
		err = e.openDatabase(ctx, o.DSN, id, o.OwnDatabase)
	}
	if err != nil {
		return nil, errors.Join(err, e.undo.run(ctx))
	}
	return e, nil
}

// openRedis reaches the instances given, and starts embedded ones where three are
// not given.
func (e *environment) openRedis(ctx context.Context, given []string) error {
	if len(given) == 0 {
		e.places[onRedis] = "embedded"
	}
	urls := slices.Clone(given)
	if len(given) < quorumSize {
		e.places[onQuorum] = fmt.Sprintf("embedded ×%d", quorumSize)
		for range quorumSize {
			server, err := embedded.StartRedis()
			if err != nil {
				return err
			}
			e.undo.add(func(context.Context) error { server.Close(); return nil })
			urls = append(urls, server.URL())
		}
	}
	e.site.Redis, e.site.Quorum = urls[0], urls[len(urls)-quorumSize:]
	for _, url := range slices.Backward(urls) { // the last one is the single instance
		client, err := newClient(url, nil)
		if err != nil {
			return err
		}
		e.redis = client
		e.undo.add(func(context.Context) error { return client.Close() })
		if err := client.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("reach Redis at %s: %w", client.Options().Addr, err)
		}
		// Locks keep some of their keys under longer names, which contain the
		// prefix and so the run's id. No other key does.
		e.undo.add(func(ctx context.Context) error { return removeKeys(ctx, client, "*"+e.site.Prefix+"*") })
	}
	return nil
}

// openDatabase makes the run's own database, with the tables of the product, that of
// its MySQL locks among them, and the lab's own.
func (e *environment) openDatabase(ctx context.Context, dsn, id string, own bool) (err error) {
	var options sqldb.Options
	if dsn == "" && own {
		if dsn, err = e.ownDatabase(ctx); err != nil {
			return err
		}
	}
	if dsn == "" {
		e.places[onSQL] = "sqlite"
		dir, err := os.MkdirTemp("", "seckill-lab-")
		if err != nil {
			return fmt.Errorf("make a directory for SQLite: %w", err)
		}
		e.undo.add(func(context.Context) error { return os.RemoveAll(dir) })
		options.SQLiteFile = filepath.Join(dir, "lab.db")
	} else {
		if e.site.DSN, err = e.ownSchema(ctx, dsn, schemaPrefix+id); err != nil {
			return err
		}
		options.DSN = e.site.DSN
	}
	if e.db, err = sqldb.Open(ctx, options); err != nil {
		return err
	}
	e.undo.add(func(context.Context) error { return e.db.Close() })
	if err := e.db.Migrate(ctx); err != nil {
		return err
	}
	for _, table := range tables() {
		if _, err := e.db.SQL().ExecContext(ctx, table); err != nil {
			return fmt.Errorf("make a table of the lab: %w", err)
		}
	}
	return nil
}

// cleanup is what has to be undone, the last first.
type cleanup []func(context.Context) error

func (c *cleanup) add(undo func(context.Context) error) { *c = append(*c, undo) }

// cleanUpBudget bounds the removal of what was made, on a context of its
// own: a run that was interrupted cleans up as well.
const cleanUpBudget = 20 * time.Second

func (c *cleanup) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBudget)
	defer cancel()
	var errs []error
	for _, undo := range slices.Backward(*c) {
		errs = append(errs, undo(ctx))
	}
	return errors.Join(errs...)
}

// scanBatch is how many keys one SCAN looks at: a fraction of a millisecond, so
// that a server in use is not held up.
const scanBatch = 1000

// removeKeys removes keys from a server that lives on.
func removeKeys(ctx context.Context, client *redis.Client, pattern string) error {
	var found []string
	keys := client.Scan(ctx, 0, pattern, scanBatch).Iterator()
	for keys.Next(ctx) {
		found = append(found, keys.Val())
	}
	if err := keys.Err(); err != nil {
		return fmt.Errorf("find the lab's keys: %w", err)
	}
	if len(found) == 0 {
		return nil
	}
	if err := client.Unlink(ctx, found...).Err(); err != nil {
		return fmt.Errorf("remove the lab's keys: %w", err)
	}
	return nil
}

// key names a key of the lock or the account.
func (s setup) key(name string) string { return s.Site.Prefix + s.Name + ":" + name }

// connect opens a client of a lock's own.
func (s setup) connect(url string) (*redis.Client, error) {
	client, err := newClient(url, s.commands)
	if err != nil {
		return nil, err
	}
	s.undo.add(func(context.Context) error { return client.Close() })
	return client, nil
}

// ioTimeout bounds one answer of Redis: far longer than a healthy one takes on
// a busy machine, far shorter than the run.
const ioTimeout = 10 * time.Second

// newClient opens a client whose commands are counted, unless count is nil.
func newClient(url string, count *atomic.Int64) (*redis.Client, error) {
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

// deniedSchema and deniedCommand MySQL answers to an account that may not make a schema.
const deniedSchema, deniedCommand = 1044, 1142

// ownSchema makes a schema for this run alone, so that nothing in the one the
// DSN names is touched. It returns the DSN of the new one.
func (e *environment) ownSchema(ctx context.Context, dsn, name string) (own string, err error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		// The parser's message may repeat a piece of the password.
		return "", errors.New("the DSN does not parse: user:password@tcp(host:port)/schema is expected")
	}
	config.DBName = ""
	server, err := sql.Open("mysql", config.FormatDSN())
	if err == nil {
		e.undo.add(func(context.Context) error { return server.Close() })
		// An interrupted CREATE may have happened, and no one could tell.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBudget)
		defer cancel()
		_, err = server.ExecContext(whole, "CREATE DATABASE "+name)
	}
	if err != nil {
		hint := ""
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok && (e.Number == deniedSchema || e.Number == deniedCommand) {
			hint = fmt.Sprintf(" (GRANT ALL ON `%s%%`.* lets an account do that)", schemaPrefix)
		}
		return "", fmt.Errorf("make a schema of the lab's own%s: %w", hint, err)
	}
	e.undo.add(func(ctx context.Context) error {
		if _, err := server.ExecContext(ctx, "DROP DATABASE "+name); err != nil {
			return fmt.Errorf("drop the lab's schema %s: %w", name, err)
		}
		return nil
	})
	config.DBName = name
	return config.FormatDSN(), nil
}
