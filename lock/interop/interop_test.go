//go:build interop

//part:interop
package interop_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// scripts are what one lock does in Java and in Go. See world.play.
var scripts = []struct {
	what   string
	lease  time.Duration
	script string
}{
	{"Java re-enters", quiet, `
		java owner lock; java owner lock; java owner holds = 2; holds 2; java other holds = 0; go g try = held
		java owner unlock; holds 1; go g try = held; java owner unlock; holds 0; go g lock; go g unlock`},
	{"Go re-enters", quiet, `
		go outer lock; holds 1; go inner try-in outer; holds 2 same; go other try-beside outer = held
		java other locked = true; java other try = false; go inner unlock; holds 1; java other try = false
		go outer unlock; holds 0; java other try = true; java other unlock`},
	{"Java cannot unlock what Go holds", quiet, `
		go g lock; holds 1; lasts; java other unlock = refused; holds 1 same; lasts; go g unlock`},
	{"Go cannot unlock what Java has by now", quiet, `
		go g lock; java operator force = true; java next lock; holds 1
		go g unlock = lost; holds 1 same; java next unlock`},
	{"Java forces Go's lock: Go's waiter is woken, its holder told at the next renewal", shortLease, `
		go first lock; go+ next; waiters 1; java operator force = true
		go= next; go first ends = lost; go first unlock = lost; go next unlock; holds 0`},
	{"Go forces Java's lock", quiet, `
		java holder lock; java+ waiter try long; waiters 1; go g force
		java= waiter = true; java holder unlock = refused; java waiter unlock; holds 0`},
	{"who does not get the lock in time gives up, and leaves nothing behind", quiet, `
		java holder lock; go g lock-briefly = timeout; java holder unlock; holds 0
		go g lock; java waiter try soon = false; go g unlock; holds 0; waiters 0`},
	{"Java's watchdog", shortLease, `java holder lock; renewed; go g try = held; holds 1; java holder unlock; holds 0`},
	{"Go's watchdog", shortLease, `go g lock; renewed; java waiter try = false; go g lives; holds 1; go g unlock; holds 0`},
	{"a fixed lease of Java's", quiet, `java fixed lock 12000; go+ g; go= g; java fixed unlock = refused; go g unlock`},
	{"a fixed lease of Go's", quiet, `
		go g lock-term; java next try long = true; go g ends = lost; go g unlock = lost; holds 1; java next unlock`},
}

func TestScripts(t *testing.T) {
	t.Parallel()
	worlds := map[time.Duration]both{quiet: setup(t, quiet), shortLease: setup(t, shortLease)}
	for _, s := range scripts {
		t.Run(s.what, func(t *testing.T) {
			t.Parallel()
			name := name(t)
			newWorld(t, worlds[s.lease], name, channelOf(name)).play(s.script)
		})
	}
}

// Without the other side's message a waiter would sleep on. Each name stands with its channel in Redisson.
func TestWaiters(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	const rounds = 10
	for _, n := range []struct{ lock, channel string }{
		{"lock:order:42", "redisson_lock__channel:{lock:order:42}"}, // the service's own, for the user 42
		{"interop:plain", "redisson_lock__channel:{interop:plain}"},
		{"interop:{tag}:1", "redisson_lock__channel:interop:{tag}:1"},
		{"interop:{open", "redisson_lock__channel:interop:{open"},
		{"锁:ÿ:%2F\\", "redisson_lock__channel:{锁:ÿ:%2F\\}"},
	} {
		t.Run(n.lock, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, b, n.lock, n.channel)
			for range rounds {
				w.play(`java a lock; go g try = held; go+ g; waiters 1; holds 1; java a unlock; go= g; holds 1 other; go g unlock; holds 0
					go g lock; java a try = false; java+ a try long; waiters 1; go g unlock; java= a = true; java a mine = true; holds 1
					java a unlock; holds 0`)
			}
		})
	}
}

// quorums are the composed locks of both sides that are the same lock.
var quorums = map[string]struct {
	java    string
	compose func(...lock.Locker) *lock.Quorum
	least   int // parts that are held at least
}{"MultiLock": {"multi", lock.All, 3}, "RedLock": {"red", lock.Majority, 2}}

func TestQuorums(t *testing.T) {
	t.Parallel()
	for _, s := range []struct{ what, quorum, script string }{
		{"exclude and wake", "MultiLock", exclude},
		{"exclude and wake", "RedLock", exclude},
		{"one of three servers is gone: both sides have the lock, and exclude each other", "RedLock", `
			kill-server; java c try long = true; holds 1; go g try = fails; java c unlock; holds 0
			go g lock; holds 1; java c try = false; holds 1; go g unlock; holds 0`},
		{"one part held by the other side keeps the lock from being taken, and leaves nothing on the others", "MultiLock", `
			java@0 single lock; go g try = held; holds@0 1; holds@1 0; holds@2 0; java@0 single unlock
			go@2 s lock; java c try = false; holds@0 0; holds@1 0; holds@2 1; go s unlock; go g lock; go g unlock; holds 0`},
	} {
		t.Run(s.quorum+"/"+s.what, func(t *testing.T) {
			t.Parallel()
			p, q, name := setupParts(t), quorums[s.quorum], name(t)
			w := newWorld(t, p.looks[0], name, channelOf(name))
			w.parts, w.kind, w.least, w.lock = &p, q.java, q.least, p.lock(q.compose, name)
			w.play(s.script)
		})
	}
}

// exclude has Redisson wait for one part after the other.
const exclude = `
	java c lock; holds 1; go g try = held; holds 1; go+ g; waiters 1; java c unlock; go= g; holds 1
	java c try = false; holds 1; java+ c try long; waiters@0 1; go g unlock; java= c = true; holds 1; java c unlock; holds 0`

// Threads of Java and goroutines of Go add to one number by reading and writing: two holders may lose an addition.
func TestExclusion(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	const threads, additions = 4, 150 // and as many goroutines
	name := name(t)
	number := name + ":number"
	check.Must(t, b.redis.Set(t.Context(), number, 0, 0).Err())
	orders := make([]order, threads)
	for i := range orders {
		orders[i] = b.java.thread("adder"+strconv.Itoa(i)).begin(t, "add", "plain", name, number, additions)
	}
	add := func() error {
		for range additions {
			lease, err := b.locks.Mutex(name).Lock(t.Context(), lock.Wait(check.Deadline))
			if err != nil {
				return err
			}
			was, err := b.redis.Get(lease.Context(), number).Int()
			if err != nil {
				return err
			}
			if err := b.redis.Set(lease.Context(), number, was+1, 0).Err(); err != nil {
				return err
			}
			if err := lease.Unlock(); err != nil {
				return err
			}
		}
		return nil
	}
	check.Volley(threads, func(int) { check.Is(t, "additions of Go", add(), nil) })
	for _, o := range orders {
		o.want(t, "")
	}
	check.Equal(t, "the number", check.Value(b.redis.Get(t.Context(), number).Int())(t), 2*threads*additions)
	b.wantHolds(t, name, 0)
}

func TestTurns(t *testing.T) {
	t.Parallel()
	name := name(t)
	w := newWorld(t, setup(t, quiet), name, channelOf(name))
	w.play(`go g lock; java+ waiter try long; waiters 1`)
	const goroutines = 8
	done := make(chan int, goroutines)
	stop := make(chan struct{})
	for range goroutines {
		go func() {
			turns := 0
			defer func() { done <- turns }()
			for {
				mine, err := w.lock.Lock(t.Context(), lock.Wait(check.Deadline))
				if err != nil {
					t.Error(err)
					return
				}
				turns++
				check.Is(t, "unlocked", mine.Unlock(), nil)
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	w.play(`waiters 2; go g unlock; java= waiter = true`)
	close(stop)
	w.play(`java waiter unlock`)
	turns := 0
	for range goroutines {
		turns += <-done
	}
	t.Logf("Java had its turn; Go had %d turns", turns)
	w.play(`holds 0`)
}

// TestMessages: both sides say the same word on the same channel when they free a lock, and nothing before.
func TestMessages(t *testing.T) {
	t.Parallel()
	name := name(t)
	w := newWorld(t, setup(t, quiet), name, channelOf(name))
	listener := w.redis.Subscribe(t.Context(), w.channel)
	t.Cleanup(func() { _ = listener.Close() })
	w.play(`waiters 1; java owner lock; java owner lock; java owner unlock; java owner unlock; go g lock; go g unlock`)
	check.Must(t, w.redis.Publish(t.Context(), w.channel, "end").Err())
	for _, want := range []string{"0", "0", "end"} {
		check.Equal(t, "the message", check.Receive(t, "a message", listener.Channel()).Payload, want)
	}
}

// The tokens of RFencedLock and of Go grow in one sequence, also over a handover inside the Go process.
func TestTokensContinue(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	for _, turns := range []string{"gjjghgj", "jjghgj"} {
		t.Run(turns, func(t *testing.T) {
			t.Parallel()
			name := name(t)
			w := newWorld(t, b, name, channelOf(name))
			java := b.java.thread(turns)
			last := int64(0)
			next := func(side string, token int64) {
				t.Helper()
				check.Need(t, token > last, "%s's token is %d, want more than the %d before it", side, token, last)
				last = token
				counter := check.Value(b.redis.Get(t.Context(), "redisson_lock_token:{"+name+"}").Int64())(t)
				check.Equal(t, "the counter", counter, token)
				java.begin(t, "token", "fenced", name).want(t, strconv.FormatInt(token, 10))
			}
			for _, turn := range turns {
				switch turn {
				case 'g':
					w.play(`go g lock; go inner try-in g; go inner unlock`)
					next("Go", w.leases["g"].Token())
					check.Equal(t, "the token of a re-entry", w.leases["inner"].Token(), last)
					w.play(`go g unlock`)
				case 'h':
					w.play(`go g lock; go+ waiter; waiters 1; go g unlock; go= waiter`)
					next("Go's waiter", w.leases["waiter"].Token())
					w.play(`go waiter unlock`)
				case 'j':
					a := java.begin(t, "locktoken", "fenced", name).wait(t)
					next("Java", check.Value(strconv.ParseInt(a.value, 10, 64))(t))
					java.begin(t, "unlock", "fenced", name).want(t, "")
				}
			}
			left := b.ttl(t, "redisson_lock_token:{"+name+"}")
			check.That(t, left < 0, "the counter expires in %v: Java would then begin again at 1", left)
		})
	}
}

// roleHolder, with a Redis URL and a lock's name, makes this test binary take the lock and hold it until it is killed.
const roleHolder = "hold-a-lock"

func hold(url, name string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return fmt.Errorf("hold %s: %w", name, err)
	}
	locks := lock.New(lock.NewRedisStore(redis.NewClient(options)), lock.WatchdogLease(shortLease))
	if _, err := locks.Mutex(name).Lock(context.Background(), lock.Wait(0)); err != nil {
		return err
	}
	_, _ = os.Stdout.WriteString("held\n")
	select {}
}

func TestKilled(t *testing.T) {
	t.Parallel()
	t.Run("Java", func(t *testing.T) {
		t.Parallel()
		name := name(t)
		newWorld(t, setup(t, shortLease), name, channelOf(name)).play(`
			java victim lock; go+ g; waiters 1; kill-java; holds 1; go= g; go g unlock; holds 0`)
	})
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		name := name(t)
		w := newWorld(t, setup(t, shortLease), name, channelOf(name))
		victim := exec.CommandContext(t.Context(), os.Args[0], roleHolder, testserver.SharedRedis(t), name)
		victim.Stderr = os.Stderr
		stdout := check.Value(victim.StdoutPipe())(t)
		check.Must(t, victim.Start())
		lines := bufio.NewScanner(stdout)
		check.Need(t, lines.Scan() && lines.Text() == "held", "the holder said %q, want held", lines.Text())
		w.play(`java+ next try long; waiters 1`)
		check.Must(t, victim.Process.Kill())
		_ = victim.Wait() // killed
		w.play(`holds 1; java= next = true; java next unlock; holds 0`)
	})
}

const jar = "target/interop.jar"

type java struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer // read after the end only
	ended  chan struct{}

	mu      sync.Mutex
	stdin   io.WriteCloser
	last    int
	waiting map[string]chan answer
}

type answer struct{ value, err string }

// startJava starts a JVM whose watchdog keeps locks for lease, on one Redis or more.
func startJava(t testing.TB, lease time.Duration, urls ...string) *java {
	t.Helper()
	args := append([]string{
		// A quick start is worth more here than a quick program.
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-jar", jar, strconv.FormatInt(lease.Milliseconds(), 10),
	}, urls...)
	cmd := exec.Command("java", args...)
	j := &java{cmd: cmd, stderr: new(bytes.Buffer), ended: make(chan struct{}), waiting: make(map[string]chan answer)}
	cmd.Stderr = j.stderr
	j.stdin = check.Value(cmd.StdinPipe())(t)
	stdout := check.Value(cmd.StdoutPipe())(t)
	err := cmd.Start()
	check.Need(t, err == nil, "start Java (install a JDK of version 17 or newer): %v", err)
	ready := make(chan struct{})
	go func() {
		defer close(j.ended)
		j.read(stdout, ready)
		_ = cmd.Wait() // how it ended is in stderr
	}()
	t.Cleanup(func() {
		j.kill()
		if t.Failed() {
			t.Logf("stderr of Java:\n%s", j.stderr)
		}
	})
	select {
	case <-ready:
	case <-j.ended:
		t.Fatalf("Java ended at once (was %s built? `make faults PART=interop` does):\n%s", jar, j.stderr)
	case <-time.After(check.Deadline):
		t.Fatal("Java was never ready")
	}
	return j
}

func (j *java) read(stdout io.Reader, ready chan<- struct{}) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "ready" {
			close(ready)
			continue
		}
		id, rest, _ := strings.Cut(lines.Text(), " ")
		kind, value, _ := strings.Cut(rest, " ")
		a := answer{value: value}
		if kind != "ok" {
			a = answer{err: value}
		}
		j.mu.Lock()
		if to := j.waiting[id]; to != nil {
			to <- a
		}
		delete(j.waiting, id)
		j.mu.Unlock()
	}
}

func (j *java) kill() {
	_ = j.cmd.Process.Kill() // an error means that it has ended
	<-j.ended
}

// thread is one thread of the JVM, which is what owns locks there. It obeys one order at a time.
type thread struct {
	java *java
	name string
}

func (j *java) thread(name string) thread { return thread{j, name} }

type order struct {
	text   string
	answer chan answer
}

func (th thread) begin(t testing.TB, verb, kind, lock string, args ...any) order {
	t.Helper()
	j := th.java
	words := []string{th.name, verb, kind, lock}
	for _, arg := range args {
		words = append(words, fmt.Sprint(arg))
	}
	o := order{strings.Join(words, " "), make(chan answer, 1)}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	id := strconv.Itoa(j.last)
	j.waiting[id] = o.answer
	if _, err := io.WriteString(j.stdin, id+" "+o.text+"\n"); err != nil {
		t.Fatalf("order %q of Java: %v", o.text, err)
	}
	return o
}

func (o order) wait(t testing.TB) answer {
	t.Helper()
	return check.Receive(t, "Java's answer to "+o.text, o.answer)
}

// want waits for an answer that must be this one; "refused" is an IllegalMonitorStateException.
func (o order) want(t testing.TB, value string) {
	t.Helper()
	a := o.wait(t)
	good := a.err == "" && a.value == value
	if value == "refused" {
		good = strings.HasPrefix(a.err, "java.lang.IllegalMonitorStateException")
	}
	check.Need(t, good, "Java answered %q with %q, error %q; want %q", o.text, a.value, a.err, value)
}
