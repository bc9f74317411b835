package sqldb

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"seckill/internal/budget"
	"seckill/internal/poll"
)

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
		stop: stop, done: make(chan struct{}), claim: d.newClaim(d.sql, name),
		budget: operationBudget + d.Slack,
	}
	go e.keep(ctx)
	return e
}

func (d *Database) newClaim(pool *sql.DB, name string) claim {
	if d.Dialect.Name == SQLite {
		return &fileClaim{flock.New(d.file + "." + name + ".lock")}
	}
	return &namedClaim{pool: pool, name: lockName(d.schema, name)}
}

func (e *Exclusive) keep(ctx context.Context) {
	defer close(e.done)
	_ = poll.Until(ctx, budget.Look, func() (bool, error) {
		_, _ = e.Held(ctx) // callers that want the result call Held
		return false, nil
	})
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
