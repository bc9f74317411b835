package bench

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// requests counts what an acquisition with its release costs Redis under contention. MONITOR tells what clients sent
// from what scripts did; INFO commandstats counts both.
func (b *bench) requests(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: b.addr})
	defer client.Close()
	rows := [][]string{{"", "requests", "commands, those inside scripts too"}}
	for _, name := range peers {
		locks, err := open(name, b.addr, contenders)
		if err != nil {
			t.Fatal(err)
		}
		l := load{Key: "requests:" + name, Goroutines: contenders, Hold: work, For: 2 * *turn}
		if _, err := l.run(t.Context(), locks); err != nil { // connections and scripts are there afterwards
			t.Fatal(err)
		}
		before, err := executed(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		m := startMonitor(t, b.addr)
		o, err := l.run(t.Context(), locks)
		if err != nil {
			t.Fatal(err)
		}
		sent := m.stop(t)
		after, err := executed(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		if err := locks.close(); err != nil {
			t.Fatal(err)
		}
		each := float64(sent) / float64(o.Count)
		rows = append(rows, []string{name, times(each), times(float64(after-before) / float64(o.Count))})
		if name == ours {
			b.target(each <= 4, "≤ 4 Redis commands per acquisition", "%.2f", each)
		}
	}
	table("64 goroutines, one lock, held for 1 ms: requests to Redis per acquisition and release", rows)
}

// monitor counts the commands that clients send.
type monitor struct {
	conn net.Conn
	sent atomic.Int64
	done chan struct{}
}

func startMonitor(t *testing.T, addr string) *monitor {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	m := &monitor{conn: conn, done: make(chan struct{})}
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	if !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR was answered with %q", lines.Text())
	}
	go func() {
		defer close(m.done)
		// 1339518083.107412 [0 127.0.0.1:60866] "keys" "*", or [0 lua] for a command inside a script.
		for lines.Scan() {
			_, source, _ := strings.Cut(lines.Text(), " [")
			source, _, ours := strings.Cut(source, `] "`)
			if ours && !strings.HasSuffix(source, " lua") {
				m.sent.Add(1)
			}
		}
	}()
	return m
}

// stop returns the count. What was sent a moment ago is still on its way to the monitor, but that is little.
func (m *monitor) stop(t *testing.T) int64 {
	t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	<-m.done
	_ = m.conn.Close()
	return m.sent.Load()
}
