//go:build interop

//part:interop

package interop_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

const (
	// quiet keeps a Go waiter from asking, and locks from ending: only a message wakes it before the common deadline.
	quiet = 10 * time.Minute
	// shortLease is the watchdog's: a machine that stands still for less than two thirds of it loses no lock.
	shortLease = 30 * time.Second
	term       = 12 * time.Second
)

// TestMain runs the tests, or, started by one of them under a role, a Go process that holds a lock.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == roleHolder {
		if err := hold(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testserver.Main(m)
}

type both struct {
	redis *redis.Client // for looking into Redis behind the locks' backs
	locks *lock.Client
	java  *java
}

// setup starts both sides on the shared Redis. The Go side relies on messages, so that a lost one shows.
func setup(t testing.TB, lease time.Duration) both {
	t.Helper()
	url := testserver.SharedRedis(t)
	client := dial(t, url)
	return both{client, locksOn(t, client, lease), startJava(t, lease, url)}
}

func dial(t testing.TB, url string) *redis.Client {
	t.Helper()
	options := check.Value(redis.ParseURL(url))(t)
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = check.Deadline,
		check.Deadline, check.Deadline, check.Deadline
	client := redis.NewClient(options)
	t.Cleanup(func() { check.Must(t, client.Close()) })
	return client
}

func locksOn(t testing.TB, client *redis.Client, lease time.Duration) *lock.Client {
	t.Helper()
	// Tokens are kept for ever, as the documentation asks for where Java uses RFencedLock.
	store := lock.NewRedisStore(client, lock.TokenRetention(0), lock.CallTimeout(check.Deadline))
	locks := lock.New(store, lock.WatchdogLease(lease), lock.UnlockTimeout(check.Deadline), lock.PollEvery(quiet),
		lock.ProbeEvery(quiet))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), check.Deadline)
		defer cancel()
		check.Is(t, "close the locks", locks.Close(ctx), nil)
	})
	return locks
}

func name(t testing.TB) string {
	t.Helper()
	return "interop:" + t.Name() + ":" + rand.Text()[:8]
}

func channelOf(name string) string { return "redisson_lock__channel:{" + name + "}" }

// holderField is what Redisson calls the owner of a lock: "<uuid>:<thread>".
var holderField = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:\d+$`)

// wantHolds checks that one holder has a lock so many times (0: nobody has it), and returns that holder.
func (b both) wantHolds(t testing.TB, name string, count int) (holder string) {
	t.Helper()
	fields := check.Value(b.redis.HGetAll(t.Context(), name).Result())(t)
	for field, held := range fields {
		check.Need(t, len(fields) == 1 && held == strconv.Itoa(count) && holderField.MatchString(field),
			"%s is held by %v, want one uuid:integer with the count %d", name, fields, count)
		holder = field
	}
	check.Need(t, len(fields) == min(count, 1), "%s is held by %v, want the count %d", name, fields, count)
	return holder
}

// waitForWaiters returns once so many connections only listen for the unlock message of a lock.
func (b both) waitForWaiters(t testing.TB, channel string, count int64) {
	t.Helper()
	check.Eventually(t, fmt.Sprintf("%d subscriptions of %s", count, channel), func() bool {
		return check.Value(b.redis.PubSubNumSub(t.Context(), channel).Result())(t)[channel] == count
	})
	// A new subscriber asks once more, and would need no message. This takes longer than its round trip.
	const roundTrips = 25
	for range roundTrips {
		b.java.thread("bystander").begin(t, "locked", "plain", "interop:nobody's").want(t, "false")
	}
}

func (b both) ttl(t testing.TB, name string) time.Duration {
	t.Helper()
	return check.Value(b.redis.PTTL(t.Context(), name).Result())(t)
}

// wantRenewals waits until the time to live of a lock has grown so many times: once for each renewal.
func (b both) wantRenewals(t testing.TB, name string, count int) {
	t.Helper()
	last := b.ttl(t, name)
	check.Eventually(t, "renewals of "+name, func() bool {
		left := b.ttl(t, name)
		check.Need(t, left > 0, "%s expired while it was held", name)
		if left > last+shortLease/10 {
			count--
		}
		last = left
		return count == 0
	})
}

type attempt chan attempted

type attempted struct {
	lease *lock.Lease
	err   error
}

func begin(t testing.TB, m lock.Locker) attempt {
	t.Helper()
	a := make(attempt, 1)
	go func() {
		lease, err := m.Lock(t.Context(), lock.Wait(check.Deadline))
		a <- attempted{lease, err}
	}()
	return a
}

func (a attempt) lease(t testing.TB) *lock.Lease {
	t.Helper()
	got := check.Receive(t, "the lock", a)
	check.Must(t, got.err)
	return got.lease
}

// parts are three independent Redis servers, each seen by both sides, which share a JVM.
type parts struct {
	servers [3]*testserver.Server
	looks   [3]both
	java    *java
}

func setupParts(t testing.TB) parts {
	t.Helper()
	var p parts
	var urls []string
	for i := range p.servers {
		p.servers[i] = testserver.Redis(t, "--appendonly", "no")
		urls = append(urls, p.servers[i].URL())
	}
	p.java = startJava(t, quiet, urls...)
	for i, url := range urls {
		client := dial(t, url)
		p.looks[i] = both{client, locksOn(t, client, quiet), p.java}
	}
	return p
}

func (p parts) lock(compose func(...lock.Locker) *lock.Quorum, name string) *lock.Quorum {
	var mutexes []lock.Locker
	for _, b := range p.looks {
		mutexes = append(mutexes, b.locks.Mutex(name))
	}
	return compose(mutexes...)
}

// wantHeld checks that a lock is held once on at least so many of the servers that run, by one holder each; 0: on none.
func (p parts) wantHeld(t testing.TB, name string, least int) {
	t.Helper()
	check.Eventually(t, "the servers that hold "+name, func() bool { // those beyond the majority may still be under way
		held := 0
		for _, b := range p.looks {
			fields, err := b.redis.HGetAll(t.Context(), name).Result()
			var answer redis.Error // else it could not be reached
			check.Need(t, !errors.As(err, &answer) && len(fields) <= 1, "%s is held by %v, error %v", name, fields, err)
			held += len(fields)
		}
		return held >= least && (held > 0) == (least > 0)
	})
}

// world is where a script is played: one lock, in Java and in Go.
type world struct {
	testing.TB
	both                  // where the lock is, or its first part
	parts   *parts        // of a lock of several parts
	kind    string        // of the lock in Java
	lock    lock.Locker   // in Go
	least   int           // parts that are held at least
	name    string        // of the lock
	channel string        // of its messages
	threads string        // begins the names of this world's threads
	holder  string        // seen last
	left    time.Duration // of the lease, seen last
	leases  map[string]*lock.Lease
	going   map[string]attempt
	orders  map[string]order
}

func newWorld(t testing.TB, b both, name, channel string) *world {
	t.Helper()
	return &world{
		TB: t, both: b, kind: "plain", lock: b.locks.Mutex(name), name: name, channel: channel,
		threads: rand.Text()[:8] + ".",
		left:    quiet, leases: map[string]*lock.Lease{}, going: map[string]attempt{}, orders: map[string]order{},
	}
}

// play obeys a script, whose steps are lines or stand between semicolons; what is wanted of a step stands behind "=".
//
//	java T VERB ARGUMENTS   thread T does as Interop.java says; "= refused" is an IllegalMonitorStateException
//	java+ T …, java= T      begins the step; waits for its answer
//	go L VERB               lease L: see goes; "= held", "= timeout", "= lost" and "= fails" are errors
//	go+ L, go= L            begins to wait for the lock; has it
//	holds N                 the lock is held N times by one holder, "same" as before or "other"
//	waiters N               so many connections listen to the lock's channel
//	lasts, renewed          the lease is as long as it was, and not longer; it is renewed twice
//	kill-java, kill-server  end the JVM, the last of three servers
//
// An @n behind java, go, holds or waiters names one part of three: there the lock is a plain one.
func (w *world) play(script string) {
	w.Helper()
	for _, line := range strings.FieldsFunc(script, func(r rune) bool { return r == ';' || r == '\n' }) {
		said, want, _ := strings.Cut(strings.TrimSpace(line), " = ")
		if words := strings.Fields(said); len(words) > 0 {
			w.step(words, want)
		}
	}
}

func (w *world) step(words []string, want string) {
	w.Helper()
	verb, part, single := strings.Cut(words[0], "@")
	b, kind, l := w.both, w.kind, w.lock
	if single {
		n := check.Value(strconv.Atoi(part))(w)
		b, kind = w.parts.looks[n], "plain"
		l = b.locks.Mutex(w.name)
	}
	switch verb {
	case "java", "java+":
		o := b.java.thread(w.threads+words[1]).begin(w, words[2], kind, w.name, arguments(words[2:])...)
		if verb == "java+" {
			w.orders[words[1]] = o
			return
		}
		o.want(w, want)
	case "java=":
		w.orders[words[1]].want(w, want)
	case "go":
		w.goes(l, words[1], words[2:], want)
	case "go+":
		w.going[words[1]] = begin(w, l)
	case "go=":
		w.leases[words[1]] = w.going[words[1]].lease(w)
	case "holds":
		w.holds(b, check.Value(strconv.Atoi(words[1]))(w), single, strings.Join(words[2:], ""))
	case "waiters":
		looks := []both{b}
		if w.parts != nil && !single {
			looks = w.parts.looks[:]
		}
		for _, each := range looks {
			each.waitForWaiters(w, w.channel, check.Value(strconv.ParseInt(words[1], 10, 64))(w))
		}
	case "lasts":
		left := b.ttl(w, w.name)
		check.Need(w, left <= w.left && left > quiet/2, "the time to live went from %v to %v", w.left, left)
		w.left = left
	case "renewed":
		b.wantRenewals(w, w.name, 2)
	case "kill-java":
		b.java.kill()
	case "kill-server":
		w.parts.servers[2].Kill()
		// What may still be undone there is then undone at once, and the clients close without waiting for it.
		w.Cleanup(w.parts.servers[2].Start)
	default:
		w.Fatalf("no such step: %s", verb)
	}
}

// arguments are those of a verb of Java's, by default a lease for the watchdog and no wait.
func arguments(words []string) (args []any) {
	for _, word := range words[1:] {
		args = append(args, word)
	}
	switch {
	case words[0] == "lock" && len(args) == 0:
		return []any{-1}
	case words[0] == "try" && len(args) == 0:
		return []any{0, -1}
	case words[0] == "try" && args[0] == "long":
		return []any{check.Deadline.Milliseconds(), -1}
	case words[0] == "try" && args[0] == "soon":
		return []any{check.Soon.Milliseconds(), -1}
	}
	return args
}

func (w *world) holds(b both, count int, single bool, same string) {
	w.Helper()
	if w.parts != nil {
		if !single {
			w.parts.wantHeld(w, w.name, min(count, 1)*w.least)
			return
		}
		// An answer may come as soon as one part has refused; the others are given back behind it.
		check.Eventually(w, w.name+" is given back",
			func() bool { return count > 0 || b.redis.Exists(w.Context(), w.name).Val() == 0 })
	}
	holder := b.wantHolds(w, w.name, count)
	check.Need(w, same == "" || (holder == w.holder) == (same == "same"), "the holder went from %s to %s, want the %s",
		w.holder, holder, same)
	w.holder = holder
}

func (w *world) goes(l lock.Locker, name string, words []string, want string) {
	w.Helper()
	lease := w.leases[name]
	var err error
	switch verb := words[0]; verb {
	case "lock":
		lease, err = l.Lock(w.Context(), lock.Wait(0))
	case "lock-briefly": // waits, and gives up
		lease, err = l.Lock(w.Context(), lock.Wait(check.Soon))
	case "lock-term": // for a fixed time
		lease, err = l.Lock(w.Context(), lock.Wait(0), lock.LeaseTime(term))
	case "try":
		lease, err = l.TryLock(w.Context())
	case "try-in": // under another lease
		lease, err = l.TryLock(w.leases[words[1]].Context())
	case "try-beside": // as a stranger that was handed the context of another lease
		lease, err = l.TryLock(lock.Detach(w.leases[words[1]].Context()))
	case "unlock":
		err = lease.Unlock()
	case "force":
		check.Equal(w, "it was held", check.Value(w.locks.ForceUnlock(w.Context(), w.name))(w), true)
	case "ends":
		check.Receive(w, "the end of the lease", lease.Context().Done())
		err = context.Cause(lease.Context())
	case "lives":
		err = context.Cause(lease.Context())
	default:
		w.Fatalf("no such step of Go: %s", verb)
	}
	w.leases[name] = lease
	if want == "fails" {
		check.Need(w, err != nil, "%s %v did not fail", name, words)
		return
	}
	check.Is(w, name+" "+strings.Join(words, " "), err,
		map[string]error{"held": lock.ErrHeld, "timeout": lock.ErrTimeout, "lost": lock.ErrLost}[want])
}
