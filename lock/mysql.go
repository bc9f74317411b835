package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// DefaultTable is the name of the lock table unless Table says otherwise.
	DefaultTable = "seckill_locks"

	// A row is kept for its token (retention); sweepEvery is a minute. Few rows a statement keep row locks short.
	sweepEvery = retention / 60
	sweepRows  = 1000

	// renewAtOnce rows are renewed at a time: a locked one must not delay the rest, and more would drain the pool.
	renewAtOnce = 8

	maxNameLength  = 255 // of the column
	maxOwnerLength = 64  // of the column
)

// MySQLStore keeps locks in a table of MySQL (8 or newer) or MariaDB (10.6 or newer). See NewMySQLStore.
type MySQLStore struct {
	db      *sql.DB
	table   string
	timeout time.Duration
	queries map[string]string

	once sync.Once // starts the sweeper
	stop context.CancelFunc
	base context.Context //nolint:containedctx // the sweeper's life
	work sync.WaitGroup
}

var _ Store = (*MySQLStore)(nil)

// MySQLOption changes a MySQLStore.
type MySQLOption func(*MySQLStore)

// Table sets the table's name (default seckill_locks). It goes into the SQL as it is.
func Table(name string) MySQLOption { return func(s *MySQLStore) { s.table = name } }

// StatementTimeout bounds each statement (default 2 s). 0 or less is the default.
func StatementTimeout(d time.Duration) MySQLOption {
	return func(s *MySQLStore) { s.timeout = orDefault(d, defaultCallTimeout) }
}

// NewMySQLStore keeps locks in a table, see MySQLTable. Leases end by the database's clock; those of the processes do
// not matter. There are no messages: a waiter of another process asks at intervals (PollEvery). Rows unused for an hour
// are deleted, once a minute, in the background. db must reach one primary for reads too: no read/write splitting, no
// balancing over nodes. Up to eight of its connections renew leases at a time.
//
// A row remembers only the last holder that gave the lock back. An acquisition that was given up under way, and arrives
// after another holder has come and gone, takes the lock for nobody until its lease ends. Each take, renewal and return
// costs a committed transaction: use it without Redis, or for a lock that survives as the data does.
func NewMySQLStore(db *sql.DB, opts ...MySQLOption) *MySQLStore {
	s := &MySQLStore{db: db, table: DefaultTable, timeout: defaultCallTimeout, queries: make(map[string]string)}
	for _, o := range opts {
		o(s)
	}
	for _, name := range []string{"acquire", "reenter", "look", "renew", "release", "abandon", "force", "sweep"} {
		s.queries[name] = query(name, s.table)
	}
	s.base, s.stop = context.WithCancel(context.Background())
	return s
}

// MySQLTable returns the statement that creates the table, for migrations.
func MySQLTable(table string) string { return query("table", table) }

// EnsureTable creates the table if it is not there: for tests, and for programs that have no migrations.
func (s *MySQLStore) EnsureTable(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, MySQLTable(s.table)); err != nil {
		return fmt.Errorf("create the lock table %s: %w", s.table, err)
	}
	return nil
}

// latest is when the lease of a row's owner ends at the latest, if the owner's name says how long it may be (see
// LongestLease), and centuries from now if not. What ends later was written while the clock was ahead.
const latest = "(UTC_TIMESTAMP(6) + INTERVAL IF(owner LIKE '________-____-8___-____-____________:%', " +
	"CONV(CAST(SUBSTRING(owner, 29, 8) AS CHAR), 16, 10), 9000000000000) * 1000 MICROSECOND)"

func query(name, table string) string {
	var b strings.Builder
	for line := range strings.Lines(file("sql/" + name + ".sql")) {
		line, _, _ = strings.Cut(line, "--")
		b.WriteString(strings.TrimRight(line, "\n"))
		b.WriteByte('\n')
	}
	return strings.TrimSpace(strings.NewReplacer("{table}", table, "{latest}", latest).Replace(b.String()))
}

// Acquire is Store's.
func (s *MySQLStore) Acquire(ctx context.Context, r Request) (Grant, error) {
	if len(r.Name) > maxNameLength || len(r.Holder) > maxOwnerLength {
		return Grant{}, fmt.Errorf("%w: the name is longer than %d bytes", ErrRefused, maxNameLength)
	}
	s.once.Do(func() { s.work.Go(s.sweeper) })
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	lease := r.Lease.Microseconds()
	var err error
	if r.Holds == 1 {
		h := r.Holder
		_, err = s.exec(ctx, "acquire", r.Name, h, r.Token, lease, h, r.Token, h, r.Token, h, h, h, h, lease)
	} else {
		_, err = s.exec(ctx, "reenter", r.Holds, lease, r.Name, r.Holder)
	}
	if err != nil {
		return Grant{}, err
	}
	row, err := s.look(ctx, r.Name)
	switch {
	case err != nil:
		return Grant{}, err
	case row.left > 0 && row.owner == r.Holder:
		return Grant{State: StateHeld, Token: row.token}, nil
	case r.Holds > 1 || row.released == r.Holder:
		return Grant{State: StateLost}, nil
	}
	return Grant{State: StateBusy, Remaining: row.left}, nil
}

// Renew is Store's.
func (s *MySQLStore) Renew(ctx context.Context, rs []Request) []error {
	errs := make([]error, len(rs))
	places := make(chan struct{}, renewAtOnce)
	var made sync.WaitGroup
	for i, r := range rs {
		places <- struct{}{} // soon: each statement is bounded
		made.Go(func() {
			defer func() { <-places }()
			there, err := s.update(ctx, r, "renew", r.Exact, r.Lease.Microseconds(), r.Name, r.Holder)
			if err == nil && !there {
				err = ErrLost
			}
			errs[i] = err
		})
	}
	made.Wait()
	return errs
}

// Release is Store's.
func (s *MySQLStore) Release(ctx context.Context, r Request) (bool, error) {
	h := r.Holder
	switch {
	case r.Abandon:
		return s.end(ctx, r.Name, h, "abandon", r.Name, h, h, h, h, h)
	case r.Holds > 0:
		return s.update(ctx, r, "reenter", r.Holds, 0, r.Name, h)
	}
	return s.end(ctx, r.Name, h, "release", h, r.Name, h)
}

// ForceRelease is Store's.
func (s *MySQLStore) ForceRelease(ctx context.Context, name string) (bool, error) {
	request := newUUID()
	return s.end(ctx, name, request, "force", request, name)
}

// Holder is Store's.
func (s *MySQLStore) Holder(ctx context.Context, name string) (string, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	row, err := s.look(ctx, name)
	if err != nil || row.left <= 0 {
		return "", 0, err
	}
	return row.owner, row.left, nil
}

// update executes a statement for a holder and returns whether that has the lock.
func (s *MySQLStore) update(ctx context.Context, r Request, statement string, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if _, err := s.exec(ctx, statement, args...); err != nil {
		return false, err
	}
	// Not by the number of rows: whether an unchanged one counts depends on the connection's clientFoundRows.
	row, err := s.look(ctx, r.Name)
	return row.left > 0 && row.owner == r.Holder, err
}

// end executes a statement that frees a lock and writes down who did, by which a repetition knows that it had freed it.
func (s *MySQLStore) end(ctx context.Context, lock, by, statement string, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	n, err := s.exec(ctx, statement, args...)
	if err != nil || n > 0 {
		return n > 0, err
	}
	row, err := s.look(ctx, lock)
	return row.released == by, err
}

// Watch is Store's: a table sends no messages.
func (s *MySQLStore) Watch(context.Context, string, func()) Watch { return nil }

// sweep deletes rows whose lock has been free for longer than age, at most sweepRows, and returns how many it deleted.
func (s *MySQLStore) sweep(ctx context.Context, age time.Duration) (int64, error) {
	return s.exec(ctx, "sweep", age.Microseconds(), sweepRows)
}

func (s *MySQLStore) sweeper() {
	for sleep(s.base, sweepEvery) {
		ctx, cancel := context.WithTimeout(s.base, s.timeout)
		for {
			if n, err := s.sweep(ctx, retention); err != nil || n < sweepRows {
				break // an error here shows in every other statement too
			}
		}
		cancel()
	}
}

// Close is Store's. The database is not closed.
func (s *MySQLStore) Close() error {
	s.stop()
	s.work.Wait()
	return nil
}

type lockRow struct {
	owner, released string
	token           int64
	left            time.Duration
}

func (s *MySQLStore) look(ctx context.Context, name string) (lockRow, error) {
	var row lockRow
	var left int64
	err := s.db.QueryRowContext(ctx, s.queries["look"], name).Scan(&row.owner, &row.token, &left, &row.released)
	if errors.Is(err, sql.ErrNoRows) {
		return lockRow{}, nil
	}
	if err != nil {
		return lockRow{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if row.owner != "" {
		row.left = time.Duration(left) * time.Microsecond
	}
	return row, nil
}

// exec executes a statement, and again when it fails: a deadlock may have chosen it, and each may be executed twice.
// The exception is a renewal, which may shorten: the client repeats it, or relies on no copy being under way.
func (s *MySQLStore) exec(ctx context.Context, name string, args ...any) (int64, error) {
	result, err := s.db.ExecContext(ctx, s.queries[name], args...)
	if err != nil && ctx.Err() == nil && name != "renew" {
		result, err = s.db.ExecContext(ctx, s.queries[name], args...)
	}
	var n int64
	if err == nil {
		n, err = result.RowsAffected()
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return n, nil
}
