//part:locks
package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

type subject struct {
	name string
	// process returns what a new process would make: locks by name, sharing nothing in memory with those of other calls.
	process func(t *testing.T) func(name string) lock.Locker
	// gone are the ways to take the lock behind everybody's back.
	gone []func(t *testing.T, name string)
}

func subjects(t *testing.T) []subject {
	t.Helper()
	var list []subject
	for _, k := range kinds(t) {
		process := func(t *testing.T) func(string) lock.Locker {
			t.Helper()
			locks := newLocks(t, k.open())
			return func(name string) lock.Locker { return locks.Mutex(name) }
		}
		list = append(list, subject{k.name, process, []func(*testing.T, string){k.expire, k.remove}})
	}
	shared := dial(t, testserver.SharedRedis(t))
	part := func(name string, i int) string { return fmt.Sprint(name, " on instance ", i) }
	for name, join := range joins() {
		process := func(t *testing.T) func(string) lock.Locker {
			t.Helper()
			locks := []*lock.Client{locksOn(t, shared), locksOn(t, shared), locksOn(t, shared)}
			return func(name string) lock.Locker {
				var parts []lock.Locker
				for i, l := range locks {
					parts = append(parts, l.Mutex(part(name, i)))
				}
				return join(parts...)
			}
		}
		remove := func(t *testing.T, name string) {
			t.Helper()
			for i := range 3 {
				shared.Del(t.Context(), part(name, i))
			}
		}
		list = append(list, subject{name, process, []func(*testing.T, string){remove}})
	}
	return list
}

func TestConformance(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, s subject, name string){
		"exclusion and tokens": conformExclusion,
		"re-entry":             conformReentry,
		"try and wait":         conformTry,
		"deadline and cancel":  conformContext,
		"loss":                 conformLoss,
		"close":                conformClose,
	}
	for _, s := range subjects(t) {
		for what, run := range cases {
			t.Run(s.name+"/"+what, func(t *testing.T) {
				t.Parallel()
				run(t, s, nameOf(t))
			})
		}
	}
}

// Locks that are tried together are those that are tried one by one, to whoever else asks for them.
func TestTryAll(t *testing.T) {
	t.Parallel()
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			one, two := newLocks(t, k.open()), newLocks(t, k.open())
			triesAll(t, one, two, nameOf(t))
			check.Equal(t, "locks held", lock.Live(one)+lock.Live(two), 0)
		})
	}
	t.Run("replies lost", triesAllUnheard)
}

func triesAll(t *testing.T, one, two *lock.Client, name string) {
	t.Helper()
	a, b, c := name+" a", name+" b", name+" c"
	foreign := mustLock(t, t.Context(), two.Mutex(b))
	errs, unlock := one.TryAll(t.Context(), a, b, c, a)
	check.Is(t, "the one that another has", errs[1], lock.ErrHeld)
	check.Is(t, "the one beside it", errs[2], nil)
	check.That(t, (errs[0] == nil) != (errs[3] == nil) && errors.Is(errors.Join(errs[0], errs[3]), lock.ErrHeld),
		"of one name twice: %v and %v", errs[0], errs[3])
	wantBusy(t, "another process", two.Mutex(a))
	wantBusy(t, "this process", one.Mutex(c))
	far, near := begin(t.Context(), two.Mutex(a)), begin(t.Context(), one.Mutex(c))
	check.Eventually(t, "both wait", func() bool { return lock.Waiting(two, a)+lock.Waiting(one, c) == 2 })
	check.Must(t, unlock())
	mustUnlock(t, got(t, "the waiter of another process", far))
	mustUnlock(t, got(t, "the waiter of this one", near))
	wantBusy(t, "the one that another had", one.Mutex(b))
	mustUnlock(t, foreign)
	_, unlock = one.TryAll(t.Context())
	check.Is(t, "the unlock of none", unlock(), nil)
	for _, l := range []string{a, b, c} {
		cycle(t, one.Mutex(l))
	}
}

// What is sent again because its reply was lost has the answers of the first time.
func triesAllUnheard(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	locks := locksOn(t, plain(t, b.url()))
	cycle(t, locks.Mutex(b.name)) // connections and scripts are there
	b.line.CutReplies()
	taken := make(chan func() error, 1)
	go func() {
		errs, unlock := locks.TryAll(t.Context(), b.name, b.name+" too")
		check.Is(t, "the locks", errors.Join(errs...), nil)
		taken <- unlock
	}()
	check.Eventually(t, "the acquisition ran", b.held)
	b.line.Heal()
	unlock := <-taken
	b.line.CutReplies()
	given := make(chan error, 1)
	go func() { given <- unlock() }()
	check.Eventually(t, "the release ran", func() bool { return !b.held() })
	b.line.Heal()
	check.Is(t, "their unlock", <-given, nil)
	cycle(t, locks.Mutex(b.name+" too"))
}

func conformExclusion(t *testing.T, s subject, name string) {
	processes := []lock.Locker{s.process(t)(name), s.process(t)(name)}
	n, last := 0, int64(0) // the race detector watches: only the lock guards them
	var inside atomic.Int32
	const workers, times = 6, 4
	check.Volley(workers, func(i int) {
		for range times {
			use(t, processes[i%2], func(lease *lock.Lease) {
				check.Equal(t, "holders", inside.Add(1), 1)
				n++
				wantLater(t, lease.Token(), last)
				last = lease.Token()
				inside.Add(-1)
			})
		}
	})
	check.Equal(t, "turns", n, workers*times)
}

func conformReentry(t *testing.T, s subject, name string) {
	l := s.process(t)(name)
	outer := mustLock(t, t.Context(), l)
	inner := mustLock(t, outer.Context(), l)
	check.Equal(t, "the token of a re-entry", inner.Token(), outer.Token())
	// A sibling that was handed the context is the same owner; one that was handed a detached one is not.
	mustUnlock(t, got(t, "sibling", begin(outer.Context(), l)))
	check.Is(t, "detached", check.ErrorOf(l.TryLock(lock.Detach(inner.Context()))), lock.ErrHeld)
	mustUnlock(t, inner)
	if inner.Context().Err() == nil || outer.Context().Err() != nil {
		t.Error("the inner lease's context must end, the outer one's not")
	}
	wantBusy(t, "after the inner unlock", l)
	mustUnlock(t, outer)
	cycle(t, l)
	check.Is(t, "a second unlock", outer.Unlock(), lock.ErrNotHeld)
	check.Is(t, "extended after its unlock", outer.Extend(t.Context(), calm), lock.ErrNotHeld)
}

func conformTry(t *testing.T, s subject, name string) {
	one, two := s.process(t)(name), s.process(t)(name)
	lease := mustLock(t, t.Context(), one)
	for _, l := range []lock.Locker{one, two} {
		wantBusy(t, "try", l)
		check.Is(t, "no wait", check.ErrorOf(l.Lock(t.Context(), lock.Wait(0))), lock.ErrTimeout)
		check.Is(t, "a wait", check.ErrorOf(l.Lock(t.Context(), lock.Wait(check.Soon))), lock.ErrTimeout)
	}
	waiter := begin(t.Context(), two)
	mustUnlock(t, lease)
	mustUnlock(t, got(t, "the waiter", waiter))
}

func conformContext(t *testing.T, s subject, name string) {
	one, two := s.process(t)(name), s.process(t)(name)
	lease := mustLock(t, t.Context(), one)
	gone := errors.New("the client hung up")
	for _, l := range []lock.Locker{one, two} {
		check.Is(t, "deadline", check.ErrorOf(l.Lock(check.Expiring(t))), context.DeadlineExceeded)
		ctx, hangUp := context.WithCancelCause(t.Context())
		time.AfterFunc(check.Soon, func() { hangUp(gone) })
		check.Is(t, "cancel", check.ErrorOf(l.Lock(ctx)), gone)
		check.Is(t, "canceled before", check.ErrorOf(l.Lock(ctx)), gone)
	}
	mustUnlock(t, lease)
	// Nothing of the failed attempts is in the way.
	cycle(t, two)
}

func conformLoss(t *testing.T, s subject, name string) {
	for i, end := range s.gone {
		name := fmt.Sprint(name, i)
		l, other := s.process(t)(name), s.process(t)(name)
		lease := mustLock(t, t.Context(), l)
		end(t, name)
		check.Is(t, "the extension of what is gone", lease.Extend(t.Context(), calm), lock.ErrLost)
		wantLost(t, lease)

		lease = mustLock(t, t.Context(), l)
		end(t, name)
		next := mustLock(t, t.Context(), other)
		wantLater(t, next.Token(), lease.Token())
		check.Is(t, "the unlock of what another has", lease.Unlock(), lock.ErrLost)
		wantBusy(t, "after that", l)
		mustUnlock(t, next)

		outer := mustLock(t, t.Context(), l)
		end(t, name)
		if _, err := l.Lock(outer.Context(), lock.Wait(0)); err == nil {
			t.Error("a re-entry took a lock that had been lost in between")
		}
		_ = outer.Unlock()
	}
}

func conformClose(t *testing.T, s subject, name string) {
	waiting := s.process(t)(name)
	var lease *lock.Lease
	t.Run("holder", func(inner *testing.T) {
		lease = mustLock(inner, t.Context(), s.process(inner)(name))
	}) // its clients are closed here
	check.Is(t, "the cause", context.Cause(lease.Context()), lock.ErrClosed)
	mustUnlock(t, lease)
	cycle(t, waiting)
}

type hold struct {
	owner int
	lease *lock.Lease
	lost  bool
}

// machine compares locks with what a lock is: at most one owner, a count of holds, tokens that grow.
type machine struct {
	locks  []*lock.Client // two processes
	name   string
	owners []context.Context // by owner: nil, or what it got with its first lease
	holds  []hold
	token  int64
}

// owner returns who has the lock, and how often; -1 for nobody.
func (m *machine) owner() (who, holds int) {
	who = -1
	for _, h := range m.holds {
		if !h.lost {
			who = h.owner
			holds++
		}
	}
	return who, holds
}

func (m *machine) process(owner int) *lock.Client { return m.locks[owner%len(m.locks)] }

func (m *machine) acquire(t *rapid.T) {
	owner := rapid.IntRange(0, len(m.owners)-1).Draw(t, "owner")
	who, holds := m.owner()
	ctx := context.Background()
	if holds > 0 && who == owner {
		ctx = m.owners[owner]
	}
	lease, err := m.process(owner).Mutex(m.name).TryLock(ctx)
	switch {
	case who == -1 || who == owner:
		if err != nil {
			t.Fatalf("owner %d, the lock is with %d: %v", owner, who, err)
		}
		if who == -1 && lease.Token() <= m.token || who == owner && lease.Token() != m.token {
			t.Fatalf("token %d after %d, owner before %d", lease.Token(), m.token, who)
		}
		m.token = lease.Token()
		m.owners[owner] = context.WithoutCancel(lease.Context()) //nolint:fatcontext // one per owner
		m.holds = append(m.holds, hold{owner: owner, lease: lease})
	case !errors.Is(err, lock.ErrHeld):
		t.Fatalf("owner %d got a lock that is with %d: %v", owner, who, err)
	}
}

func (m *machine) release(t *rapid.T) {
	if len(m.holds) == 0 {
		t.Skip("nothing is held")
	}
	i := rapid.IntRange(0, len(m.holds)-1).Draw(t, "hold")
	h := m.holds[i]
	m.holds = append(m.holds[:i], m.holds[i+1:]...)
	err := h.lease.Unlock()
	if h.lost != errors.Is(err, lock.ErrLost) || !h.lost && err != nil {
		t.Fatalf("unlock, lost %v: %v", h.lost, err)
	}
	if h.lease.Context().Err() == nil {
		t.Fatal("the context of a lease lives on after its unlock")
	}
	if err := h.lease.Unlock(); !errors.Is(err, lock.ErrNotHeld) {
		t.Fatalf("a second unlock: %v", err)
	}
}

func (m *machine) force(t *rapid.T) {
	_, holds := m.owner()
	was, err := m.locks[0].ForceUnlock(context.Background(), m.name)
	if err != nil || was != (holds > 0) {
		t.Fatalf("forced %v with %d holds: %v", was, holds, err)
	}
	for i := range m.holds {
		m.holds[i].lost = true
	}
}

func (m *machine) extend(t *rapid.T) {
	if len(m.holds) == 0 {
		t.Skip("nothing is held")
	}
	h := m.holds[rapid.IntRange(0, len(m.holds)-1).Draw(t, "hold")]
	err := h.lease.Extend(context.Background(), calm)
	if h.lost != errors.Is(err, lock.ErrLost) || !h.lost && err != nil {
		t.Fatalf("extend, lost %v: %v", h.lost, err)
	}
}

func (m *machine) check(t *rapid.T) {
	who, _ := m.owner()
	lease, err := m.locks[1].Mutex(m.name).TryLock(context.Background())
	if who != -1 {
		if !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("a stranger got a lock that is with %d: %v", who, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("nobody has the lock: %v", err)
	}
	m.token = lease.Token()
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			locks := []*lock.Client{newLocks(t, k.open()), newLocks(t, k.open())}
			again := 1
			if k.forgets { // it is quick
				again = 20
			}
			for range again {
				rapid.Check(t, func(r *rapid.T) {
					m := &machine{locks: locks, name: nameOf(t), owners: make([]context.Context, 4)}
					r.Repeat(map[string]func(*rapid.T){
						"acquire": m.acquire, "release": m.release, "force": m.force, "extend": m.extend, "": m.check,
					})
					for _, h := range m.holds {
						_ = h.lease.Unlock()
					}
				})
			}
		})
	}
}

// newCluster is a Cluster of two nodes, half of the slots each. No node is ever taken for dead.
func newCluster(t *testing.T) (client *redis.ClusterClient, servers []*testserver.Server, nodes []*redis.Client) {
	t.Helper()
	opt := &redis.ClusterOptions{
		DialTimeout: check.Deadline, ReadTimeout: check.Deadline, WriteTimeout: check.Deadline,
		PoolTimeout:           check.Deadline,
		ContextTimeoutEnabled: true,
	}
	for i := range 2 {
		s := testserver.Redis(t, "--cluster-enabled", "yes", "--appendonly", "no", "--cluster-node-timeout", "600000")
		node := dial(t, s.URL())
		check.Must(t, node.ClusterAddSlotsRange(t.Context(), i*8192, i*8192+8191).Err())
		opt.Addrs, servers, nodes = append(opt.Addrs, s.Addr()), append(servers, s), append(nodes, node)
	}
	host, port, _ := strings.Cut(opt.Addrs[1], ":")
	check.Must(t, nodes[0].ClusterMeet(t.Context(), host, port).Err())
	for _, node := range nodes {
		check.Eventually(t, "the cluster", func() bool {
			info := node.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_assigned:16384")
		})
	}
	client = redis.NewClusterClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client, servers, nodes
}

//nolint:tparallel // one Cluster, and in the end one of its nodes hangs
func TestCluster(t *testing.T) {
	t.Parallel()
	client, servers, nodes := newCluster(t)
	t.Run("together", func(t *testing.T) { triesAll(t, locksOn(t, client), locksOn(t, client), nameOf(t)) })
	t.Run("exclusion", func(t *testing.T) {
		one, two := locksOn(t, client), locksOn(t, client)
		const keys = 6 // on both nodes
		var counts [keys]int
		var last [keys]int64
		check.Volley(4*keys, func(w int) {
			i := w / 4
			m := []*lock.Client{one, two}[w%2].Mutex(fmt.Sprint("k", i))
			for range 5 {
				use(t, m, func(lease *lock.Lease) {
					counts[i]++ // the race detector watches
					wantLater(t, lease.Token(), last[i])
					last[i] = lease.Token()
					check.Is(t, "extended", lease.Extend(t.Context(), 2*calm), nil)
				})
			}
		})
		for i, n := range counts {
			check.Equal(t, fmt.Sprint("turns with key ", i), n, 20)
		}
	})
	t.Run("renewal of keys in different slots", func(t *testing.T) {
		s := newAsked(t, redisStore(client))
		var all []lock.Request
		for i := range 10 {
			r := request(fmt.Sprint("renewed", i), 1)
			s.acquire("taken", r, lock.StateHeld)
			all = append(all, r, request(fmt.Sprint("nobody's", i), 1))
		}
		for i, err := range s.Renew(t.Context(), all) {
			check.Is(t, all[i].Name, err, []error{nil, lock.ErrLost}[i%2])
		}
	})
	t.Run("message", func(t *testing.T) {
		held := mustLock(t, t.Context(), locksOn(t, client).Mutex("woken"))
		waiter := begin(t.Context(), newLocks(t, redisStore(client), onlyMessages()...).Mutex("woken"))
		check.Eventually(t, "a sharded subscription", func() bool {
			n := 0
			for _, node := range nodes {
				n += len(node.PubSubShardChannels(context.Background(), "redisson_lock__channel:{woken}").Val())
			}
			return n == 1
		})
		mustUnlock(t, held)
		mustUnlock(t, got(t, "the waiter", waiter))
	})
	// The keys of odd names miss a shared slot: refused at once, and never undone. Guard: CROSSSLOT in classify.
	t.Run("names that miss their slot", func(t *testing.T) {
		for kind, store := range map[string]lock.Store{"redis": redisStore(client), "setnx": lock.NewSetNXStore(client, lock.CallTimeout(check.Deadline))} {
			locks := newLocks(t, store)
			for name, refused := range map[string]error{
				"plain": nil, "{user}:42": nil, "lock:{user}": nil,
				"": lock.ErrRefused, "a}b": lock.ErrRefused, "a{b": lock.ErrRefused, "{}": lock.ErrRefused, "a{}b": lock.ErrRefused,
			} {
				lease, err := take(t.Context(), locks.Mutex(name))
				check.Is(t, fmt.Sprintf("%s %q", kind, name), err, refused)
				if err == nil {
					mustUnlock(t, lease)
				}
			}
		}
	})
	t.Run("a node that hangs", func(t *testing.T) {
		hangs(t, client, servers[0])
	})
}

// A silent node of a Cluster holds up its own locks, and no others, in taking, renewing and giving back.
func hangs(t *testing.T, client *redis.ClusterClient, server *testserver.Server) {
	t.Helper()
	store := redisStore(client)
	locks := newLocks(t, store)
	const each = 30 // more than pipelines have places
	var stuck, free []string
	for n := 0; len(stuck) < each || len(free) < each; n++ {
		name := fmt.Sprint("lane", n)
		if check.Value(client.MasterForKey(t.Context(), name))(t).Options().Addr == server.Addr() {
			stuck = append(stuck, name)
		} else {
			free = append(free, name)
		}
	}
	for _, name := range []string{stuck[0], free[0]} { // every script is known
		cycle(t, locks.Mutex(name))
	}
	server.Pause()
	defer server.Resume()
	var hanging, going []<-chan attempt
	for i := range each {
		hanging = append(hanging, begin(t.Context(), locks.Mutex(stuck[i])))
		going = append(going, begin(t.Context(), locks.Mutex(free[i])))
	}
	for i, waiting := range going {
		lease := got(t, "a lock on the other node", waiting)
		check.Is(t, "renewed for who does not hold it",
			store.Renew(t.Context(), []lock.Request{request(free[i], 1)})[0], lock.ErrLost)
		mustUnlock(t, lease)
	}
	server.Resume()
	for _, waiting := range hanging {
		mustUnlock(t, got(t, "a lock on the node that hung", waiting))
	}
}

type pair struct {
	primary, replica *testserver.Server
	line             *testserver.Line
	now              *redis.Client // whoever is primary
}

func newPair(t *testing.T) *pair {
	t.Helper()
	// Redis would wait 5 s for more replicas before it sends a copy.
	args := []string{"--appendonly", "no", "--repl-diskless-sync-delay", "0"}
	p := &pair{primary: testserver.Redis(t, args...), replica: testserver.Redis(t, args...)}
	p.line = testserver.NewLine(t, p.primary.Addr())
	p.now = dial(t, p.primary.URL())
	p.follow(t)
	return p
}

// follow makes the replica one, of a primary that is as new.
func (p *pair) follow(t *testing.T) {
	t.Helper()
	replica := dial(t, p.replica.URL())
	host, port, _ := strings.Cut(p.line.Addr(), ":")
	check.Must(t, replica.ReplicaOf(t.Context(), host, port).Err())
	check.Eventually(t, "the replica follows", func() bool {
		return strings.Contains(p.now.Info(t.Context(), "replication").Val(), "state=online") &&
			p.now.Do(t.Context(), "wait", 1, 1).Val() == int64(1)
	})
}

// freeze swallows what the primary says to its replica, and what that acknowledges, from now on.
func (p *pair) freeze() { p.line.Hole() }

func (p *pair) promote(t *testing.T) {
	t.Helper()
	p.now = dial(t, p.replica.URL())
	check.Eventually(t, "the promotion", func() bool {
		return p.now.ReplicaOf(t.Context(), "NO", "ONE").Err() == nil &&
			strings.Contains(p.now.Info(t.Context(), "replication").Val(), "role:master")
	})
}

func synced(t testing.TB, client redis.UniversalClient, n int) *lock.Client {
	t.Helper()
	return newLocks(t, redisStore(client, lock.Synced(n)), onlyMessages()...)
}

// What its replica lacks is given back. Guards: enough in send; Unsynced in Client.got, and in settle.
func TestSynced(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	replica := dial(t, p.replica.URL())
	listening := func(locks *lock.Client, m *lock.Mutex) <-chan attempt {
		next := begin(t.Context(), m)
		check.Eventually(t, "one waits, and listens", func() bool {
			return lock.Waiting(locks, m.Name()) == 1 && subscribed(t, p.now, m.Name()) == 1
		})
		return next
	}
	for what, locks := range map[string]*lock.Client{"all": synced(t, p.now, lock.AllReplicas), "one": synced(t, p.now, 1)} {
		m := locks.Mutex(what)
		first := mustLock(t, t.Context(), m)
		check.Equal(t, "the replica has it", replica.Exists(t.Context(), what).Val(), 1)
		next := listening(locks, m)
		mustUnlock(t, first)
		second := got(t, "the next", next)
		holder, _, err := locks.Holder(t.Context(), what)
		check.Must(t, err)
		check.Equal(t, "the replica has the next one", replica.HExists(t.Context(), what, holder).Val(), true)
		mustUnlock(t, second)
	}
	check.Is(t, "two of one", check.ErrorOf(synced(t, p.now, 2).Mutex("two").TryLock(t.Context())), lock.ErrUnsynced)
	single := synced(t, dial(t, testserver.SharedRedis(t)), lock.AllReplicas)
	cycle(t, single.Mutex(nameOf(t))) // a server without replicas needs none

	all := synced(t, p.now, lock.AllReplicas)
	held := mustLock(t, t.Context(), all.Mutex("handed over"))
	next := listening(all, all.Mutex("handed over"))
	p.freeze()
	mustUnlock(t, held)
	check.Is(t, "handed over, and not confirmed", check.Receive(t, "the next", next).err, lock.ErrUnsynced)
	check.Is(t, "not confirmed", check.ErrorOf(all.Mutex("k").TryLock(t.Context())), lock.ErrUnsynced)
	for _, name := range []string{"two", "handed over", "k"} {
		check.Eventually(t, name+" is given back", func() bool { return p.now.Exists(t.Context(), name).Val() == 0 })
	}
}

// TestSlowCountOfReplicas: who asks alone does not wait long, and asks again in the queue. Guard: ErrNotSent in alone.
func TestSlowCountOfReplicas(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := redisStore(dial(t, b.url()), lock.Synced(lock.AllReplicas))
	m := newLocks(t, store).Mutex(b.name)
	for range 20 { // by then an answer was swift
		cycle(t, m)
	}
	b.line.Slow(check.Soon)
	lock.Recount(store)
	cycle(t, m)
}

// TestOnline: a replica that gets its first copy, or is silent, is not waited for. Guards: state, lag.
func TestOnline(t *testing.T) {
	t.Parallel()
	check.Equal(t, "replicas", lock.Online("# Replication\r\nrole:master\r\nconnected_slaves:4\r\n"+
		"slave0:ip=::1,port=1,state=online,offset=14,lag=0\r\nslave1:ip=10.0.0.1,port=2,state=online,offset=14,lag=10\r\n"+
		"slave2:ip=10.0.0.2,port=3,state=online,offset=14,lag=11\r\nslave3:ip=10.0.0.3,port=4,state=wait_bgsave,offset=0,lag=0\r\n"), 2)
}
