package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"seckill/internal/workshop/check"
)

// heard is what the clients of one measurement heard.
type heard struct {
	answers, refused int
	broken           int // without an answer, or with one that came too late
	took             time.Duration
	cpu              time.Duration // of the generator
	p50, p99, p999   time.Duration
	unheard          int // the most answers that were still under way at the end, and that nobody heard

	refusals *heard // of the open load: what was refused, by itself
}

func (h heard) rate() float64 { return float64(h.answers) / h.took.Seconds() }

// patience is after which an answer counts as late: longer than the longest one that the contract allows.
const patience = "10s"

// closed lets clients ask again and again, on so many connections, which are spread over the instances.
func closed(t *testing.T, urls []string, connections, seconds int, w work) heard {
	t.Helper()
	parts := make([]heard, len(urls))
	var all sync.WaitGroup
	for i, url := range urls {
		all.Go(func() { parts[i] = wrk(t, url, connections/len(urls), seconds, w.on(w.records.part(i, len(urls)))) })
	}
	all.Wait()
	sum := parts[0]
	for _, part := range parts[1:] {
		sum.answers += part.answers
		sum.refused += part.refused
		sum.broken += part.broken
		sum.unheard += part.unheard
		sum.cpu += part.cpu
		sum.took = max(sum.took, part.took)
		sum.p50, sum.p99, sum.p999 = max(sum.p50, part.p50), max(sum.p99, part.p99), max(sum.p999, part.p999)
	}
	return sum
}

// wrk runs the generator once.
func wrk(t *testing.T, url string, connections, seconds int, w work) heard {
	t.Helper()
	file, width, begin, count := "none", 0, 0, 0
	if w.records != nil {
		file, width, begin, count = w.records.path, w.records.width, w.records.begin, w.records.count
	}
	script := check.Value(filepath.Abs("load.lua"))(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n "$(ulimit -Hn)" && exec wrk "$@"`, "wrk",
		"-t1", "-c", strconv.Itoa(connections), "-d", strconv.Itoa(seconds)+"s", "--timeout", patience, "-s", script,
		url, "--", w.head, file, strconv.Itoa(width), strconv.Itoa(begin), strconv.Itoa(count))
	said, err := cmd.Output()
	if err != nil {
		t.Errorf("wrk (apt-get install wrk): %v\n%s", err, said)
		return heard{}
	}
	var summary struct{ Answers, Micros, Refused, Broken, Late, P50, P99, P999 int }
	lines := bytes.Split(bytes.TrimSpace(said), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &summary); err != nil {
		t.Errorf("wrk: %v\n%s", err, said)
	}
	if w.sells && summary.Answers > count {
		t.Errorf("%d buyers are too few: there were %d answers", count, summary.Answers)
	}
	micros := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	return heard{
		answers: summary.Answers, refused: summary.Refused, broken: summary.Broken + summary.Late, unheard: connections,
		took: micros(summary.Micros), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		p50: micros(summary.P50), p99: micros(summary.P99), p999: micros(summary.P999),
	}
}

// constant sends at a constant rate, whatever the answers take. A request's time counts from the moment at which it was
// due, not from when the generator came to send it: what waits behind a slow answer is slow itself.
func constant(t *testing.T, url string, perSecond, seconds int, w work) heard {
	t.Helper()
	targets := w.targets(t, url, perSecond*seconds)
	const connections = 2048 // idle ones that are kept; the load opens as many as it needs
	client := &http.Client{Transport: &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	attacker := vegeta.NewAttacker(vegeta.Client(client), vegeta.Workers(64), vegeta.MaxWorkers(4096))
	pace := exactly{vegeta.ConstantPacer{Freq: perSecond, Per: time.Second}, uint64(perSecond * seconds)}
	before := ownCPU(t)
	var sent []*vegeta.Result
	for result := range attacker.Attack(vegeta.NewStaticTargeter(targets...), pace, 0, "open") {
		sent = append(sent, result)
	}
	out := sinceDue(sent, perSecond)
	out.cpu = ownCPU(t) - before
	return out
}

// sinceDue counts the answers, and their times from when the requests were due.
func sinceDue(sent []*vegeta.Result, perSecond int) (out heard) {
	first := slices.MinFunc(sent, func(a, b *vegeta.Result) int { return cmp.Compare(a.Seq, b.Seq) })
	var good, refused []time.Duration
	for _, result := range sent {
		due := first.Timestamp.Add(time.Duration(result.Seq-first.Seq) * time.Second / time.Duration(perSecond))
		took := result.End().Sub(due)
		out.took = max(out.took, result.End().Sub(first.Timestamp))
		switch {
		case result.Code == 0:
			out.broken++
		case result.Code >= http.StatusBadRequest:
			out.refused++
			out.answers++
			refused = append(refused, took)
		default:
			out.answers++
			good = append(good, took)
		}
	}
	out.spread(good)
	out.refusals = &heard{answers: len(refused), took: out.took}
	out.refusals.spread(refused)
	return out
}

// spread tells how long answers took.
func (h *heard) spread(took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	at := func(part float64) time.Duration { return took[min(len(took)-1, int(part*float64(len(took))))] }
	h.p50, h.p99, h.p999 = at(0.5), at(0.99), at(0.999)
}

// exactly is a constant pace that ends after so many requests. One that ended after a time would not send what is due
// at its end when the generator is late.
type exactly struct {
	vegeta.ConstantPacer
	requests uint64
}

// Pace implements vegeta.Pacer.
func (e exactly) Pace(elapsed time.Duration, sent uint64) (wait time.Duration, stop bool) {
	if sent >= e.requests {
		return 0, true
	}
	return e.ConstantPacer.Pace(elapsed, sent)
}

// eventually is check.Eventually for what may take longer, such as a long queue.
func eventually(ctx context.Context, within time.Duration, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for tick := time.Tick(20 * time.Millisecond); !holds(); {
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v", within)
		case <-tick:
		}
	}
	return nil
}
