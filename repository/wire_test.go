package repository_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/sqldb"
)

// verdict is what the wire does with a statement on its way to the server.
type verdict int

const (
	pass      verdict = iota
	cutBefore         // the statement is lost with its connection
	cutAfter          // the statement is carried out, its answer lost
	later             // the client loses its connection at once, the statement arrives when late is closed
	refuse            // the statement is refused as by a cluster's node without quorum (1047), and not carried out
	denied            // the statement is carried out, and answered like a refused one
)

// refusal is the packet with which a node without quorum refuses a statement.
var refusal = []byte("\x1b\x00\x00\x01\xff\x17\x04#08S01WSREP is not ready")

// wire is a proxy that reads what a client says to MySQL, statement by statement, and can lose it or its answer.
type wire struct {
	t     testing.TB
	judge func(statement string) verdict // called on its way; it may act on the database
	late  chan struct{}
	over  chan struct{} // the test has ended

	deadlocks atomic.Int32 // that the server has told of
}

// limits are what a SELECT says about its time.
var limits = regexp.MustCompile(`/\*M!\S+ SET STATEMENT max_statement_time=\S+ FOR \*/ |/\*\+ MAX_EXECUTION_TIME\(\d+\) \*/ `)

// deadlock is in the packet with which a server ends a transaction for another one's sake (1213).
const deadlock = "\xff\xbd\x04#40001"

// newWire gives the DSN by which the server of another DSN is reached through the wire.
func newWire(t testing.TB, dsn string, judge func(w *wire, statement string) verdict) string {
	t.Helper()
	through, _ := watchedWire(t, dsn, judge)
	return through
}

func watchedWire(t testing.TB, dsn string, judge func(w *wire, statement string) verdict) (string, *wire) {
	t.Helper()
	cfg := check.Value(mysql.ParseDSN(dsn))(t)
	w := &wire{t: t, late: make(chan struct{}), over: make(chan struct{})}
	w.judge = func(statement string) verdict { return judge(w, statement) }
	proxy := testserver.NewProxy(t, cfg.Addr, w.carry)
	t.Cleanup(func() { close(w.over) }) // before the proxy ends
	cfg.Addr = proxy.Addr()
	return cfg.FormatDSN(), w
}

// watched is one more instance, and a count of the deadlocks that it and those hear of who are opened with its options.
func (f *fixture) watched(t testing.TB, strategy model.StockStrategy) (*fixture, *atomic.Int32) {
	t.Helper()
	dsn, w := watchedWire(t, f.options.DSN, func(*wire, string) verdict { return pass })
	s := f.store
	s.strategy = strategy
	return openFixture(t, s, sqldb.Options{DSN: dsn, Slack: check.Deadline}), &w.deadlocks
}

func (w *wire) carry(client, server net.Conn) {
	var mute sync.Mutex // locked for good when answers are to be lost
	var deny atomic.Bool
	answers := make(chan struct{})
	defer func() {
		_, _ = client.Close(), server.Close()
		<-answers
	}()
	go func() {
		defer close(answers)
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil || !mute.TryLock() {
				return
			}
			answer := buffer[:n]
			if bytes.Contains(answer, []byte(deadlock)) {
				w.deadlocks.Add(1)
			}
			if deny.Swap(false) {
				answer = refusal
			}
			_, err = client.Write(answer)
			mute.Unlock()
			if err != nil {
				return
			}
		}
	}()
	for {
		packet, err := readPacket(client)
		if err != nil {
			return
		}
		verdict := pass
		if len(packet) > 5 && packet[4] == 3 { // COM_QUERY
			verdict = w.judge(limits.ReplaceAllString(string(packet[5:]), ""))
		}
		switch verdict {
		case cutBefore:
			return
		case cutAfter:
			mute.Lock()
			_, _ = server.Write(packet)
			<-answers // the first answer ends its reader
			return
		case later:
			mute.Lock()
			_ = client.Close()
			select {
			case <-w.late:
			case <-w.over:
				return
			}
			_, _ = server.Write(packet)
			<-answers
			return
		case refuse:
			if _, err := client.Write(refusal); err != nil {
				return
			}
		case denied, pass:
			deny.Store(verdict == denied)
			if _, err := server.Write(packet); err != nil {
				return
			}
		}
	}
}

func readPacket(r io.Reader) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32([]byte{header[0], header[1], header[2], 0})
	packet := make([]byte, 4+size)
	copy(packet, header[:])
	_, err := io.ReadFull(r, packet[4:])
	return packet, err
}

// onceOn gives a verdict to the first statement that begins with a prefix, and lets everything else pass.
func onceOn(prefix string, act func(w *wire) verdict) func(*wire, string) verdict {
	var once sync.Once
	return func(w *wire, statement string) verdict {
		v := pass
		if bytes.HasPrefix([]byte(strings.TrimSpace(statement)), []byte(prefix)) {
			once.Do(func() { v = act(w) })
		}
		return v
	}
}
