package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"seckill/lock"
)

// cutoffLease is the watchdog's lease in the workload cutoff.
const cutoffLease = time.Second

// cutoff takes the network away from holders, and looks whether each one's context ends before another one has the
// lock. A positive margin is safe.
func (b *bench) cutoff(t *testing.T) {
	const each = 20
	rows := [][]string{{"", "tries", "ended before", "least margin", "median margin"}}
	for _, name := range []string{ours, rueidiss} {
		batches := 5
		if name != ours {
			batches = 2 // enough to see, and it takes long
		}
		var margins []time.Duration
		for batch := range batches {
			got := make([]time.Duration, each)
			var all sync.WaitGroup
			for i := range each {
				all.Go(func() { got[i] = b.cutOne(t, name, "cutoff:"+strconv.Itoa(batch*each+i)) })
			}
			all.Wait()
			margins = append(margins, got...)
		}
		safe := 0
		for _, margin := range margins {
			if margin > 0 {
				safe++
			}
		}
		o := outcome{Waits: margins}
		rows = append(rows, []string{name, strconv.Itoa(len(margins)), strconv.Itoa(safe), millis(o.wait(0)), millis(o.wait(0.5))})
		if name == ours {
			b.target(safe == len(margins), "a holder cut off from Redis: its context ends before another holder exists", "%d of %d", safe, len(margins))
		}
	}
	table(fmt.Sprintf("Holders cut off from Redis, watchdog lease %v: the end of the context before the next holder", cutoffLease), rows)
}

// cutOne returns how long before the next holder's acquisition the context of a cut-off holder ended.
func (b *bench) cutOne(t *testing.T, name, key string) time.Duration {
	link := startLink(t, b.addr)
	holder, err := openShort(name, link.addr)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer holder.close()
	next, err := openShort(name, b.addr)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer next.close()
	defer link.close()

	held, _, err := holder.acquire(t.Context(), key)
	if err != nil {
		t.Error(err)
		return 0
	}
	ended := make(chan time.Time, 1)
	context.AfterFunc(held, func() { ended <- time.Now() })
	took, released := make(chan time.Time, 1), make(chan struct{})
	go func() {
		defer close(released)
		_, release, err := next.acquire(t.Context(), key)
		took <- time.Now()
		if err == nil {
			err = release()
		}
		if err != nil {
			t.Error(err)
		}
	}()
	// At least one renewal, and not the same moment after it for each.
	<-time.After(cutoffLease/2 + time.Duration(len(key)+int(key[len(key)-1]))*time.Millisecond)
	link.cut()
	taken := <-took
	<-released
	select {
	case end := <-ended:
		return taken.Sub(end)
	case <-time.After(10 * cutoffLease):
		t.Errorf("%s: the context of a cut-off holder did not end within ten leases", name)
		return -10 * cutoffLease
	}
}

func openShort(name, addr string) (locker, error) {
	if name == rueidiss {
		return openRueidis(addr, cutoffLease)
	}
	return openOurs(addr, lock.WatchdogLease(cutoffLease), lock.UnlockTimeout(cutoffLease)), nil
}

// link passes connections on to Redis until it is cut; then nothing gets through any more and nobody is told.
type link struct {
	addr     string
	listener net.Listener
	gone     chan struct{}

	mu    sync.Mutex
	conns []net.Conn
	isCut bool
}

func startLink(t *testing.T, to string) *link {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{addr: listener.Addr().String(), listener: listener, gone: make(chan struct{})}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			dialed, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			l.keep(from, dialed)
			go l.pass(from, dialed)
			go l.pass(dialed, from)
		}
	}()
	return l
}

func (l *link) keep(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conns...)
}

// pass copies until the link is cut, and then keeps the connections open and mute.
func (l *link) pass(from io.Reader, to io.Writer) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		isCut := l.isCut
		l.mu.Unlock()
		if err != nil {
			return
		}
		if isCut {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
}

func (l *link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}
