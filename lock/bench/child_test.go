package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// roleVariable tells the test binary, started again by the benchmark, what to be.
const (
	roleVariable = "LOCK_BENCH_ROLE"
	roleLoad     = "load"   // reads a load; then at each line carries it out for that long, and answers the outcome
	roleWaiter   = "waiter" // reads a load (contestant and address); then at each line takes that lock, answers when, releases it
)

// process is a child.
type process struct {
	t   *testing.T
	in  io.WriteCloser
	out *json.Decoder
}

func startChild(t *testing.T, role string, l load) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0]) // ends with its stdin
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // ends it
		if err := cmd.Wait(); err != nil {
			t.Errorf("a child ended with: %v", err)
		}
	})
	p := &process{t: t, in: in, out: json.NewDecoder(out)}
	line, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	p.say(string(line))
	p.hear(new(bool))
	return p
}

func (p *process) say(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatalf("write to a child: %v", err)
	}
}

func (p *process) hear(answer any) {
	p.t.Helper()
	if err := p.out.Decode(answer); err != nil {
		p.t.Fatalf("read from a child: %v", err)
	}
}

// child is what the other process does until its stdin ends.
func child(role string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // longer than any benchmark
	defer cancel()
	lines, answers := bufio.NewScanner(in), json.NewEncoder(out)
	if !lines.Scan() {
		return fmt.Errorf("child: no load: %w", lines.Err())
	}
	var l load
	if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
		return fmt.Errorf("child: read the load: %w", err)
	}
	locks, err := open(l.Peer, l.Addr, max(l.Goroutines, 1))
	if err != nil {
		return err
	}
	// Connected, and the scripts known, before the clock runs.
	warm := load{Key: "warm:" + strconv.Itoa(os.Getpid()), Each: true, Goroutines: max(l.Goroutines, 1), For: 50 * time.Millisecond}
	if _, err := warm.run(ctx, locks); err != nil {
		return err
	}
	if err := answers.Encode(true); err != nil {
		return err
	}
	for lines.Scan() {
		answer, err := act(ctx, role, l, locks, strings.TrimSpace(lines.Text()))
		if err == nil {
			err = answers.Encode(answer)
		}
		if err != nil {
			return fmt.Errorf("child with %s: %w", l.Peer, err)
		}
	}
	return locks.close()
}

func act(ctx context.Context, role string, l load, locks locker, order string) (any, error) {
	if role == roleLoad {
		var err error
		if l.For, err = time.ParseDuration(order); err != nil {
			return nil, fmt.Errorf("read the length of a turn: %w", err)
		}
		return l.run(ctx, locks)
	}
	_, release, err := locks.acquire(ctx, order)
	at := time.Now().UnixNano()
	if err != nil {
		return nil, err
	}
	return at, release()
}
