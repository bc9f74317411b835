//go:build faults

//part:packaging

package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

// load is what a generator sends. It is written for little CPU, which it takes from the service: a request is a few
// copied strings, a write and a read.
type load struct {
	addresses   []string // of the instances, over which the connections are spread
	connections int
	rate        int // requests a second; 0: each connection asks again as soon as it has its answer
	lasts       time.Duration
	request     func(buffer []byte, n int) []byte // appends the n-th request
}

// heard is what the clients heard.
type heard struct {
	sent, broken  int             // broken: without an answer
	good, refused []time.Duration // how long each answer took since its request was due
	took, cpu     time.Duration   // cpu: of the generator
}

// answers are all of them.
func (h heard) answers() int { return len(h.good) + len(h.refused) }

func (h heard) rate() float64 { return float64(h.answers()) / h.took.Seconds() }

// patience is how long an answer is waited for: longer than the longest one that the contract allows.
const patience = 10 * time.Second

// run sends for as long as the load lasts, and returns when every request has its answer.
func (l load) run(t testing.TB) (sum heard) {
	t.Helper()
	conns := make([]net.Conn, l.connections)
	for i := range conns {
		conns[i] = check.Value(net.Dial("tcp", l.addresses[i%len(l.addresses)]))(t)
		defer conns[i].Close()
	}
	parts, errs := make([]heard, l.connections), make([]error, l.connections)
	var next atomic.Int64
	var all sync.WaitGroup
	before, start := ownCPU(t), time.Now()
	for i, conn := range conns {
		all.Go(func() { errs[i] = l.ask(conn, &next, start, &parts[i]) })
	}
	all.Wait()
	sum.took, sum.cpu = time.Since(start), ownCPU(t)-before
	for _, part := range parts {
		sum.sent += part.sent
		sum.broken += part.broken
		sum.good, sum.refused = append(sum.good, part.good...), append(sum.refused, part.refused...)
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("the generator: %v", err)
	}
	slices.Sort(sum.good)
	slices.Sort(sum.refused)
	return sum
}

// ask sends one request after the other on a connection. In an open load each has the moment at which it is due,
// whichever connection is free then: one that is late because all were busy is as late as it is for a buyer.
func (l load) ask(conn net.Conn, next *atomic.Int64, start time.Time, h *heard) error {
	end := start.Add(l.lasts)
	if err := conn.SetDeadline(end.Add(patience)); err != nil {
		return err
	}
	reader, buffer := bufio.NewReader(conn), make([]byte, 0, 1024)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		n, due := int(next.Add(1))-1, time.Now()
		if l.rate > 0 {
			due = start.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
		}
		if !due.Before(end) {
			return nil
		}
		if ahead := time.Until(due); ahead > 0 {
			timer.Reset(ahead)
			<-timer.C
		}
		h.sent++
		buffer = l.request(buffer[:0], n)
		_, err := conn.Write(buffer)
		status := 0
		if err == nil {
			status, err = answer(reader)
		}
		switch took := time.Since(due); {
		case err != nil:
			h.broken++
			return err
		case status < http.StatusBadRequest:
			h.good = append(h.good, took)
		default:
			h.refused = append(h.refused, took)
		}
	}
}

// answer reads one answer, whose length it has to say.
func answer(from *bufio.Reader) (status int, err error) {
	line, err := from.ReadSlice('\n')
	if err != nil || len(line) < len("HTTP/1.1 200") {
		return 0, fmt.Errorf("read an answer: %w %q", err, line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	for length := -1; ; {
		if line, err = from.ReadSlice('\n'); err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if value, is := bytes.CutPrefix(line, []byte("Content-Length: ")); is {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		}
		if len(line) > 0 {
			continue
		}
		if length < 0 {
			return 0, errors.New("an answer does not say its length")
		}
		_, err = io.CopyN(io.Discard, from, int64(length))
		return status, err
	}
}

// ownCPU is what this process has computed.
func ownCPU(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	check.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// milliseconds is a quantile of sorted times; 0 when there is none.
func milliseconds(took []time.Duration, quantile float64) float64 {
	if len(took) == 0 {
		return 0
	}
	return float64(took[min(len(took)-1, int(quantile*float64(len(took))))].Microseconds()) / 1000
}
