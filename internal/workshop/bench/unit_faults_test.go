//go:build faults

//part:packaging

package bench

import (
	"bufio"
	"io"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// A run whose accounts do not agree is an error and no figure.
func TestAccounts(t *testing.T) {
	t.Parallel()
	some := make([]time.Duration, 100)
	type run struct {
		work
		sells, open bool
		heard       heard
		counts      counts
	}
	sale := run{sells: true, heard: heard{good: some}, counts: counts{"rows": 100, "fsyncs": 4, "messages": 5}}
	refusal := run{
		work: work{opposes: true, code: model.CodeSoldOut}, heard: heard{refused: some},
		counts: counts{"seckill_orders_placed_total SOLD_OUT": 100},
	}
	reading := run{heard: heard{good: some}}
	for name, test := range map[string]struct {
		run
		spoil func(*run)
		want  string // no error when empty
	}{
		"a sale":                    {sale, func(*run) {}, ""},
		"a refusal":                 {refusal, func(*run) {}, ""},
		"a reading":                 {reading, func(*run) {}, ""},
		"overload":                  {sale, func(r *run) { r.open, r.heard.refused = true, some }, ""},
		"an order is lost":          {sale, func(r *run) { r.counts["rows"] = 99 }, "there are 99 new rows"},
		"orders nobody asked for":   {sale, func(r *run) { r.counts["rows"] = 109 }, "there are 109 new rows"},
		"no fsync of the database":  {sale, func(r *run) { r.counts["fsyncs"] = 0 }, "without an fsync"},
		"no message":                {sale, func(r *run) { r.counts["messages"] = 0 }, "stored no message"},
		"a buyer is refused":        {sale, func(r *run) { r.heard.refused = some[:1] }, "1 of 101 answers were refusals"},
		"a buyer hears nothing":     {sale, func(r *run) { r.heard.broken = 1 }, "1 requests had no answer"},
		"nobody is answered":        {reading, func(r *run) { r.heard.good = nil }, "there was no answer"},
		"a refusal that sells":      {refusal, func(r *run) { r.heard.good = some[:1] }, "1 of 101 answers were no refusal"},
		"a refusal of another kind": {refusal, func(r *run) { clear(r.counts) }, "counts 0 × SOLD_OUT"},
		"a reading that is refused": {reading, func(r *run) { r.heard.refused = some[:2] }, "2 of 102 answers were refusals"},
	} {
		r := test.run
		r.counts = maps.Clone(r.counts)
		test.spoil(&r)
		err := r.account(r.sells, model.ModeAsync, r.open, r.heard, r.counts)
		check.That(t, (err == nil) == (test.want == "") && (err == nil || strings.Contains(err.Error(), test.want)), "%s: %v", name, err)
	}
}

// The service stands still for a while: what was due meanwhile is as late as it is for a buyer. The generator reads
// answers and refusals, and whose connection breaks has no answer.
func TestLatenciesCountFromWhenARequestWasDue(t *testing.T) {
	t.Parallel()
	network := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer network.Close()
	const stalls = 300 * time.Millisecond
	go func() {
		conn, err := network.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for lines, n := bufio.NewReader(conn), 0; ; n++ {
			line, err := lines.ReadString('\n')
			switch {
			case err != nil || line == "10\n":
				return // and the connection breaks
			case line == "2\n":
				<-time.After(stalls)
			}
			status := map[bool]string{true: "409 Conflict", false: "202 Accepted"}[line == "5\n"]
			_, _ = io.WriteString(conn, "HTTP/1.1 "+status+"\r\nX: y\r\nContent-Length: 2\r\n\r\n{}")
		}
	}()
	conn := check.Value(net.Dial("tcp", network.Addr().String()))(t)
	defer conn.Close()
	numbered := func(buffer []byte, n int) []byte { return append(strconv.AppendInt(buffer, int64(n), 10), '\n') }
	l := load{rate: 100, lasts: time.Second, request: numbered}
	var h heard
	var next atomic.Int64
	err := l.ask(conn, &next, time.Now(), &h)
	check.That(t, err != nil && h.broken == 1 && h.sent == 11, "%v, %d sent, %d broken", err, h.sent, h.broken)
	check.That(t, len(h.good) == 9 && len(h.refused) == 1, "%d good, %d refused", len(h.good), len(h.refused))
	waited := stalls - 30*time.Millisecond // the refused one was due 30 ms behind the one that stalled
	check.That(t, h.good[2] >= stalls && h.refused[0] >= waited, "good %v, refused %v", h.good, h.refused)
}
