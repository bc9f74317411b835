package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/conns"
	"seckill/internal/poll"
)

const (
	// hostLookEvery and hostLookBudget: a server that takes no writes any more is left within their sum, less than
	// a second, also one that does not answer.
	hostLookEvery  = 250 * time.Millisecond
	hostLookBudget = 500 * time.Millisecond
	// hostLookPause is between two looks, however many requests ask for one: while no server takes writes, a look
	// must not become a load of its own.
	hostLookPause = 50 * time.Millisecond
	// hostReturnAfter: an earlier server of the same cluster is used again only after it has accepted writes for this long,
	// so that one that restarts again and again is not followed each time.
	hostReturnAfter = 10 * time.Second
	// maxHosts bounds the connections that the looks hold. A cluster has three, five or seven members.
	maxHosts = 16
)

// writeNothing is refused where a sale's statements would be: by a server that is read-only for this account, by a
// member of a cluster without quorum, and by one that rejects queries. It matches no row, so that it locks none and
// nothing is written or replicated.
const writeNothing = "UPDATE order_mode SET mode = mode WHERE id = 0"

// groupMajority is false on a member of Group Replication that has left its group, or that reaches no majority of it.
// Such a member takes writeNothing, which it need not tell the others, and lets every COMMIT wait, for
// group_replication_unreachable_majority_timeout or for ever. A server that is no member has no row, and MariaDB skips
// what is for MySQL 8 alone.
const groupMajority = "SELECT COALESCE(/*!80000 (SELECT SUM(member_state IN ('ONLINE', 'RECOVERING')) * 2 > COUNT(*)" +
	" FROM performance_schema.replication_group_members), */ TRUE)"

// errNoMajority says that a server would let every COMMIT wait.
var errNoMajority = errors.New("the member of Group Replication reaches no majority of its group")

// hosts are the servers of a DSN. One is used at a time: the first that takes writes. It is left only for another one
// that takes writes; while none does, reads go on where they are. With one server, which may be a router or an address
// that moves, its connections are made anew once it has refused a write and takes writes again.
type hosts struct {
	servers []*host
	log     *slog.Logger
	budget  time.Duration // of one look
	at      atomic.Pointer[place]
	// left is called when connections that stand in the pools are of no use any more.
	left func()

	// blind says that the account may not look at groupMajority, or that there is nothing to look at.
	blind atomic.Bool
	// doubtful says that a statement was refused as by a server that takes no writes.
	doubtful atomic.Bool
	wake     chan struct{}
	stop     context.CancelFunc
	work     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	looking chan struct{} // closed when the look under way has ended; nil: none is
	ended   time.Time     // of the latest look
	// Only the look under way uses these.
	fit    time.Time // since when an earlier server could be gone back to
	warned bool      // of two servers that take writes and are no cluster
}

// host is one server.
type host struct {
	addr  string
	probe *sql.DB // one connection, for the looks
	open  conns.Set
}

// place is a stay at a server. Connections that were made during an earlier stay are closed.
type place struct{ number int }

// hostDSNs makes of a DSN whose address is a list, tcp(h1:3306,h2:3306), one for each server. The driver has no such
// form: it takes the list for one name, which no server has.
func hostDSNs(dsn string) ([]string, error) {
	slash := strings.LastIndexByte(dsn, '/')
	network := strings.LastIndexByte(dsn[:max(slash, 0)], '@') + 1
	open := network + len("tcp(")
	if slash < open || dsn[network:open] != "tcp(" || dsn[slash-1] != ')' {
		return []string{dsn}, nil
	}
	addresses := strings.Split(dsn[open:slash-1], ",")
	if len(addresses) == 1 {
		return []string{dsn}, nil
	}
	if len(addresses) > maxHosts {
		return nil, fmt.Errorf("the database's DSN names %d servers; %d is the most", len(addresses), maxHosts)
	}
	dsns := make([]string, len(addresses))
	for i, address := range addresses {
		if address = strings.TrimSpace(address); address == "" {
			return nil, fmt.Errorf("the database's DSN names no server at place %d of its list", i+1)
		}
		dsns[i] = dsn[:open] + address + dsn[slash-1:]
	}
	return dsns, nil
}

// newHosts prepares the looks at the servers that the configurations name. Nothing is asked before watch.
func newHosts(configs []*mysql.Config, log *slog.Logger, slack time.Duration) (*hosts, error) {
	h := &hosts{log: log, budget: hostLookBudget + slack, left: func() {}, wake: make(chan struct{}, 1)}
	h.at.Store(&place{})
	for _, cfg := range configs {
		s := &host{addr: cfg.Addr}
		if cfg.Net == "tcp" {
			cfg.DialFunc = s.dial
		}
		hasty := cfg.Clone()
		hasty.Timeout, hasty.ReadTimeout, hasty.WriteTimeout = h.budget, h.budget, h.budget
		connector, err := mysql.NewConnector(hasty)
		if err != nil {
			return nil, errors.Join(errDSN, h.close())
		}
		s.probe = sql.OpenDB(connector)
		s.probe.SetMaxOpenConns(1)
		s.probe.SetConnMaxIdleTime(connectionRest)
		h.servers = append(h.servers, s)
	}
	return h, nil
}

// watch chooses a server, and goes on looking until close.
func (h *hosts) watch(ctx context.Context) {
	if len(h.servers) > 1 {
		h.look(ctx)
	}
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.work.Go(func() {
		ticker := time.NewTicker(hostLookEvery)
		defer ticker.Stop()
		for ctx.Err() == nil {
			select {
			case <-h.wake:
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if len(h.servers) > 1 || h.doubtful.Load() {
				h.look(ctx)
			}
		}
	})
}

// close ends the looks. A nil hosts has none.
func (h *hosts) close() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	if h.stop != nil {
		h.stop()
	}
	h.work.Wait()
	var errs []error
	for _, s := range h.servers {
		errs = append(errs, s.probe.Close())
	}
	return errors.Join(errs...)
}

// doubt asks for a look, because a statement was refused.
func (h *hosts) doubt() {
	h.doubtful.Store(true)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// place is the stay of the moment. A nil hosts has none.
func (h *hosts) place() *place {
	if h == nil {
		return nil
	}
	return h.at.Load()
}

// moved reports whether another stay has begun since the one given, after a look if need be. The first look may have
// begun before the caller's trouble did.
func (h *hosts) moved(ctx context.Context, from *place) bool {
	if h == nil {
		return false
	}
	for range 2 {
		if h.at.Load() != from || len(h.servers) == 1 || ctx.Err() != nil {
			break
		}
		h.look(ctx)
	}
	return h.at.Load() != from && ctx.Err() == nil
}

// look asks every server and chooses one. Those who ask meanwhile wait for the same look.
func (h *hosts) look(ctx context.Context) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	done := h.looking
	if done == nil {
		done = make(chan struct{})
		h.looking = done
		wait := hostLookPause - time.Since(h.ended)
		h.work.Go(func() { //nolint:contextcheck // the look is for all who wait, whoever leaves
			poll.Pause(context.Background(), wait)
			h.choose(h.ask())
			h.mu.Lock()
			h.looking, h.ended = nil, time.Now()
			h.mu.Unlock()
			close(done)
		})
	}
	h.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// ask asks all servers at once whether they take writes.
func (h *hosts) ask() []error {
	ctx, cancel := context.WithTimeout(context.Background(), h.budget)
	defer cancel()
	answers := make([]error, len(h.servers))
	var asked sync.WaitGroup
	for i, s := range h.servers {
		asked.Go(func() { answers[i] = s.answer(h.takesWrites(ctx, s.probe)) })
	}
	asked.Wait()
	return answers
}

// choose stays, moves on, or goes back to an earlier server, by what the servers have answered.
func (h *hosts) choose(answers []error) {
	at := h.at.Load().number
	first := slices.Index(answers, nil)
	earlier := first >= 0 && first < at && answers[at] == nil
	if !earlier {
		h.fit = time.Time{}
	}
	switch {
	case first < 0: // no server takes writes
	case answers[at] != nil:
		h.move(first, answers[at])
	case h.doubtful.Swap(false):
		h.move(at, nil)
	case earlier && h.together(first, at):
		if h.fit.IsZero() {
			h.fit = time.Now()
		} else if time.Since(h.fit) >= hostReturnAfter {
			h.move(first, nil)
		}
	}
}

// move begins another stay. Why is what the server that is left has answered.
func (h *hosts) move(to int, why error) {
	from := h.at.Swap(&place{number: to})
	h.doubtful.Store(false)
	h.log.Warn("the database's connections are made anew", slog.String("server", h.servers[to].addr),
		slog.String("before", h.servers[from.number].addr), slog.Any("error", why))
	if _, answered := errors.AsType[*mysql.MySQLError](why); why != nil && !answered {
		h.servers[from.number].open.Cut() // whoever waits for its answer would wait for nothing
	}
	h.left()
}

// together reports whether two servers that take writes are members of one Galera cluster. Of two that are not, one
// has missed what was sold on the other, or soon will.
func (h *hosts) together(i, k int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), h.budget)
	defer cancel()
	one, other := h.servers[i].cluster(ctx), h.servers[k].cluster(ctx)
	if one != "" && one == other {
		h.warned = false
		return true
	}
	if !h.warned {
		h.warned = true
		h.log.Error("two servers of SECKILL_DATABASE_DSN take writes and are no members of one Galera cluster: the one in use is kept",
			slog.String("server", h.servers[k].addr), slog.String("other", h.servers[i].addr))
	}
	return false
}

// takesWrites is nil when a sale's statements would be carried out by a server.
func (h *hosts) takesWrites(ctx context.Context, at *sql.DB) error {
	if _, err := at.ExecContext(ctx, writeNothing); err != nil || h.blind.Load() {
		return err
	}
	majority := true
	err := at.QueryRowContext(ctx, groupMajority).Scan(&majority)
	if _, answered := errors.AsType[*mysql.MySQLError](err); answered {
		h.blind.Store(isMySQL(err, noSuchTable, tableDenied))
		return nil // it has carried the statement out
	}
	if err == nil && !majority {
		return errNoMajority
	}
	return err
}

// answer is what a server has answered. A schema without tables yet takes writes too.
func (s *host) answer(err error) error {
	if err == nil || isMySQL(err, noSuchTable) {
		return nil
	}
	// The next look connects anew: behind the same address there may be another server by then.
	s.probe.SetMaxIdleConns(0)
	s.probe.SetMaxIdleConns(1)
	return err
}

// cluster names the Galera cluster that a server is a member of; empty when it is none or does not answer.
func (s *host) cluster(ctx context.Context) string {
	var name, id string
	err := s.probe.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'").Scan(&name, &id)
	if err != nil || strings.Trim(id, "0-") == "" {
		return ""
	}
	return id
}

// dial connects, and keeps the connection at hand.
func (s *host) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return s.open.Keep(conn), nil
}

// hostConnector opens connections to the server in use.
type hostConnector struct {
	hosts    *hosts
	of       []driver.Connector // by the servers' numbers
	patience time.Duration
}

// Connect implements driver.Connector. When the server in use cannot be reached, the others are looked at within the
// time of ctx.
func (c hostConnector) Connect(ctx context.Context) (driver.Conn, error) {
	at := c.hosts.at.Load()
	conn, err := c.of[at.number].Connect(ctx)
	if err != nil && c.hosts.moved(ctx, at) {
		at = c.hosts.at.Load()
		conn, err = c.of[at.number].Connect(ctx)
	}
	if err != nil {
		return nil, err
	}
	return endWith(conn, &stay{hosts: c.hosts, at: at}, c.patience)
}

// Driver implements driver.Connector.
func (c hostConnector) Driver() driver.Driver { return c.of[0].Driver() }

// stay remembers which primary a connection was opened to, so that it is closed when the primary changes.
type stay struct {
	hosts *hosts
	at    *place
}

// over reports whether another stay has begun. A nil stay never ends.
func (s *stay) over() bool { return s != nil && s.hosts.at.Load() != s.at }

// refused is told that the server refused a statement because it takes no writes.
func (s *stay) refused() {
	if s != nil && !s.over() {
		s.hosts.doubt()
	}
}
