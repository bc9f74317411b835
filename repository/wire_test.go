package repository_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
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

// wire is a proxy that reads what a client says to MySQL, statement by
// statement, and can lose it or its answer.
type wire struct {
	t        testing.TB
	listener net.Listener
	target   string
	judge    func(statement string) verdict // called on its way; it may act on the database
	late     chan struct{}
	over     chan struct{} // the test has ended
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// newWire gives the DSN by which the server of another DSN is reached through
// the wire.
func newWire(t testing.TB, dsn string, judge func(w *wire, statement string) verdict) string {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	must(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	w := &wire{t: t, listener: listener, target: cfg.Addr, late: make(chan struct{}), over: make(chan struct{})}
	w.judge = func(statement string) verdict { return judge(w, statement) }
	w.wg.Go(w.accept)
	t.Cleanup(func() {
		close(w.over)
		_ = listener.Close()
		w.mu.Lock()
		for _, conn := range w.conns {
			_ = conn.Close()
		}
		w.mu.Unlock()
		w.wg.Wait()
	})
	cfg.Addr = listener.Addr().String()
	return cfg.FormatDSN()
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, client, server)
		w.mu.Unlock()
		w.wg.Go(func() { w.carry(client, server) })
	}
}

func (w *wire) carry(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	var mute sync.Mutex // locked for good when answers are to be lost
	var deny atomic.Bool
	answers := make(chan struct{})
	w.wg.Go(func() {
		defer close(answers)
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil || !mute.TryLock() {
				return
			}
			answer := buffer[:n]
			if deny.Swap(false) {
				answer = refusal
			}
			_, err = client.Write(answer)
			mute.Unlock()
			if err != nil {
				return
			}
		}
	})
	for {
		packet, err := readPacket(client)
		if err != nil {
			return
		}
		verdict := pass
		if len(packet) > 5 && packet[4] == 3 { // COM_QUERY
			verdict = w.judge(string(packet[5:]))
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

// onceOn gives a verdict to the first statement that begins with a prefix, and
// lets everything else pass.
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
