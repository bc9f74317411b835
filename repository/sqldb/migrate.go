package sqldb

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/pressly/goose/v3"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	// migrationTable remembers which migrations were applied.
	migrationTable = "schema_versions"
	// tableBefore did so before version 1.0.0, whose first migration is the whole schema.
	tableBefore = "schema_migrations"
)

// MigrationStatus is one migration this program knows.
type MigrationStatus struct {
	Version   int64
	Name      string // of its file
	Applied   bool
	AppliedAt time.Time // zero when not applied
}

// Migrate brings the schema up to date. One process works, others wait until ctx ends. It repeats after passing faults.
func (d *Database) Migrate(ctx context.Context) error {
	err := patiently(ctx, func() error {
		return d.withGoose(ctx, func(provider *goose.Provider) error {
			applied, err := provider.Up(ctx)
			for _, migration := range applied {
				d.log.InfoContext(ctx, "schema migration applied", slog.Int64("version", migration.Source.Version),
					slog.String("file", path.Base(migration.Source.Path)), slog.Duration("took", migration.Duration))
			}
			return err
		})
	})
	return Named("migrate the database", err)
}

// MigrationStatus tells of every migration whether it was applied, oldest first.
func (d *Database) MigrationStatus(ctx context.Context) ([]MigrationStatus, error) {
	var list []MigrationStatus
	err := d.withGoose(ctx, func(provider *goose.Provider) error {
		known, err := provider.Status(ctx)
		for _, migration := range known {
			list = append(list, MigrationStatus{
				Version: migration.Source.Version, Name: path.Base(migration.Source.Path),
				Applied: migration.State == goose.StateApplied, AppliedAt: migration.AppliedAt.UTC(),
			})
		}
		return err
	})
	return list, Named("read the state of migrations", err)
}

// withGoose works alone, on connections without the short timeouts of requests. One lock is around all of it: goose
// looks for pending migrations and makes its table before it locks, so that some of several first starts fail. MySQL
// has goose's own lock too: the connection that migrates holds it, and both are lost together.
func (d *Database) withGoose(ctx context.Context, work func(*goose.Provider) error) (err error) {
	pool, err := d.maintenance()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	pool.SetMaxOpenConns(3) // one holds the lock, one migrates, one to spare

	options := []goose.ProviderOption{goose.WithTableName(migrationTable), goose.WithDisableGlobalRegistry(true)}
	dialect := goose.DialectSQLite3
	if d.Dialect.Name == MySQL {
		dialect = goose.DialectMySQL
		options = append(options, goose.WithSessionLocker(namedLocker{lockName(d.schema, "goose")}))
	}
	alone := d.newClaim(pool, "migrate")
	if err := pollLock(ctx, func() (bool, error) { return alone.hold(ctx) }); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, alone.release()) }()

	if err := pool.QueryRowContext(ctx, "SELECT 1 FROM "+tableBefore).Scan(new(int)); err == nil {
		return errBefore
	}
	if err := mendMigrationTable(ctx, pool); err != nil {
		return err
	}
	files, err := fs.Sub(migrationFiles, path.Join("migrations", d.Dialect.Name))
	if err != nil {
		return fmt.Errorf("find the migrations: %w", err)
	}
	provider, err := goose.NewProvider(dialect, pool, files, options...)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	return work(provider)
}

var errBefore = model.Unavailable("The database was made before version 1.0.0 and cannot be migrated: give the service an empty one.", nil)

// mendMigrationTable drops a table left empty: MySQL commits DDL by itself, and goose fails without its first row.
func mendMigrationTable(ctx context.Context, conn *sql.DB) error {
	var rows int
	err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+migrationTable).Scan(&rows)
	if err != nil || rows > 0 {
		return nil //nolint:nilerr // no table yet, or a trouble that the next statement meets as well
	}
	if _, err := conn.ExecContext(ctx, "DROP TABLE "+migrationTable); err != nil {
		return fmt.Errorf("remove the empty %s: %w", migrationTable, err)
	}
	return nil
}

// namedLocker is goose's own lock in MySQL: it ends with its connection, and so with its process.
type namedLocker struct{ name string }

func (l namedLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	return pollLock(ctx, func() (bool, error) { return getLock(ctx, conn, l.name) })
}

func (l namedLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "DO RELEASE_LOCK(?)", l.name); err != nil {
		return fmt.Errorf("release the lock %s: %w", l.name, err)
	}
	return nil
}

func pollLock(ctx context.Context, try func() (bool, error)) error {
	err := poll.Until(ctx, budget.Blink, try)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("wait for another process to migrate: %w", err)
	}
	return err
}

// SchemaProbe tells an instance that does not migrate by itself when the schema is up to date.
func (d *Database) SchemaProbe() func(ctx context.Context) error {
	var current atomic.Bool // a schema never goes back
	return func(ctx context.Context) error {
		if current.Load() {
			return nil
		}
		migrations, err := d.MigrationStatus(ctx)
		if err != nil {
			return err
		}
		for _, migration := range migrations {
			if !migration.Applied {
				return model.Unavailable("the database lacks "+migration.Name+": run seckill migrate", nil)
			}
		}
		current.Store(true)
		return nil
	}
}

// Exclusive is a claim to be the only one of a name on a database.
type Exclusive struct {
	claim  claim
	budget time.Duration // of one look
	stop   context.CancelFunc
	done   chan struct{}
	turn   sync.Mutex
}

type claim interface {
	// hold takes the lock if it is free, and reports whether it is ours.
	hold(ctx context.Context) (bool, error)
	release() error
}

// Exclusive claims a name for as long as this process lives, and keeps trying while another has it. In MySQL it is a
// named lock of its own connection, taken again when that is lost. In SQLite a file beside the database is locked.
func (d *Database) Exclusive(name string) *Exclusive {
	ctx, stop := context.WithCancel(context.Background())
	e := &Exclusive{
		stop: stop, done: make(chan struct{}), claim: d.newClaim(d.sql, name), budget: operationBudget + d.Slack,
	}
	go func() {
		defer close(e.done)
		_ = poll.Until(ctx, budget.Look, func() (bool, error) {
			_, _ = e.Held(ctx) // callers that want the result call Held
			return false, nil
		})
	}()
	return e
}

func (d *Database) newClaim(pool *sql.DB, name string) claim {
	if d.Dialect.Name == SQLite {
		return &fileClaim{flock.New(d.file + "." + name + ".lock")}
	}
	return &namedClaim{pool: pool, name: lockName(d.schema, name)}
}

// Held reports whether the claim is ours, taking a free one; false without an error: another process has it.
func (e *Exclusive) Held(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, e.budget)
	defer cancel()
	e.turn.Lock()
	defer e.turn.Unlock()
	return e.claim.hold(ctx)
}

// Close gives the claim up.
func (e *Exclusive) Close() error {
	e.stop()
	<-e.done
	e.turn.Lock()
	defer e.turn.Unlock()
	return e.claim.release()
}

type fileClaim struct{ file *flock.Flock }

func (c *fileClaim) hold(context.Context) (bool, error) {
	if c.file.Locked() {
		return true, nil
	}
	held, err := c.file.TryLock()
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", c.file.Path(), err)
	}
	return held, nil
}

func (c *fileClaim) release() error { return c.file.Unlock() }

// namedClaim is a named lock of MySQL, see https://mariadb.com/kb/en/get_lock/.
type namedClaim struct {
	pool *sql.DB
	name string
	conn *sql.Conn
}

func (c *namedClaim) hold(ctx context.Context) (bool, error) {
	if c.conn != nil {
		var ours sql.NullBool
		err := c.conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()", c.name).Scan(&ours)
		if err == nil && ours.Bool {
			return true, nil
		}
		c.drop() // lost, or not to be told: a new connection finds out
	}
	conn, err := c.pool.Conn(ctx)
	if err != nil {
		return false, fmt.Errorf("connect to claim %s: %w", c.name, err)
	}
	c.conn = conn
	held, err := getLock(ctx, conn, c.name)
	if err != nil || !held {
		c.drop()
	}
	return held, err
}

// drop ends the connection itself and does not return it to the pool, where it would keep the lock.
func (c *namedClaim) drop() {
	if c.conn == nil {
		return
	}
	_ = c.conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool throws such connections away
	_ = c.conn.Close()
	c.conn = nil
}

func (c *namedClaim) release() error {
	c.drop()
	return nil
}

// longestLockName is what MySQL allows, in characters.
const longestLockName = 64

// lockName names a lock of a schema: named locks are the server's, and other schemas on it are none of ours.
func lockName(schema, name string) string {
	full := "seckill." + schema + "." + name
	if len(full) <= longestLockName {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	return "seckill." + hex.EncodeToString(sum[:16]) + "." + name[:min(len(name), 16)]
}

func getLock(ctx context.Context, conn *sql.Conn, name string) (bool, error) {
	var got sql.NullBool // NULL: an error, for example out of memory
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", name).Scan(&got); err != nil {
		return false, fmt.Errorf("take the lock %s: %w", name, err)
	}
	return got.Bool, nil
}
