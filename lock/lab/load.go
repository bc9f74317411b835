package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
	"golang.org/x/sync/errgroup"

	"seckill/internal/poll"
)

// Load is how hard the workers of a free run work.
type Load struct {
	// Workers share the account (default 8), half of them in each of two processes.
	Workers int `json:"workers"`
	// Operations of each worker (default 50).
	Operations int `json:"operations"`
	// Duration is after which no worker begins another operation (default 2 s).
	Duration time.Duration `json:"duration"`
	// Think is the longest time between reading and writing; it is drawn anew
	// each time (default 200 µs). Negative: none.
	Think time.Duration `json:"think"`
	// Seed of the think times (default 1).
	Seed uint64 `json:"seed"`
	// Process says which of the two processes this is; the lab sets it.
	Process uint64 `json:"process"`
}

// split gives half of the work to each of two processes.
func (l Load) split() [2]Load {
	first, second := l, l
	second.Workers = l.Workers / 2
	first.Workers = l.Workers - second.Workers
	second.Process = 1
	return [2]Load{first, second}
}

// work is the share of one process. It stands when it is ready, and when it is over.
func (l Load) work(ctx context.Context, s strategy, with setup) (tally, error) {
	stand := with.pause
	with.pause = l.thinker()
	perform, err := s.open(with)
	if err != nil {
		return tally{}, err
	}
	if err := stand(ctx, pointReady); err != nil {
		return tally{}, err
	}
	total, err := l.run(ctx, perform)
	if err != nil {
		return tally{}, err
	}
	return total, stand(ctx, pointOver)
}

func (l Load) run(ctx context.Context, work perform) (total tally, err error) {
	var mu sync.Mutex
	ending := time.Now().Add(l.Duration)
	group, ctx := errgroup.WithContext(ctx)
	for range l.Workers {
		group.Go(func() error {
			for n := 0; n < l.Operations && time.Now().Before(ending); n++ {
				told, err := work(ctx)
				if err != nil {
					return err
				}
				mu.Lock()
				total.merge(told)
				mu.Unlock()
			}
			return nil
		})
	}
	err = group.Wait()
	return total, err
}

// thinker is the pause of the free run: it thinks between reading and writing,
// and stops nowhere else.
func (l Load) thinker() pause {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(l.Seed, l.Process)) //nolint:gosec // repeatable on purpose
	return func(ctx context.Context, p point) error {
		if p != pointRead || l.Think <= 0 {
			return nil
		}
		mu.Lock()
		d := time.Duration(random.Int64N(int64(l.Think)))
		mu.Unlock()
		poll.Pause(ctx, d)
		return context.Cause(ctx)
	}
}

// freeRun lets two processes work as fast as they can, and measures them.
func (r runner) freeRun(out *Row) attack {
	// Half as many units as buyers, so that the stock runs out under way.
	stock := int64(r.Workers) * int64(r.Operations) / 2
	return attack{name: "free run", stock: stock, run: func(ctx context.Context, a *arena) error {
		var sent atomic.Int64
		for _, half := range r.split() {
			a.worker(ctx, fmt.Sprint(half.Process), func(s *setup) { s.load, s.commands = &half, &sent })
		}
		if err := a.all(ctx, pointReady); err != nil {
			return err
		}
		before, began := sent.Load(), time.Now()
		if err := a.all(ctx, pointOver); err != nil {
			return err
		}
		took, commands := time.Since(began), sent.Load()-before
		err := a.finish(ctx, a.workers...)
		out.measure(a.tally, took, commands)
		return err
	}}
}

// countedConn counts the commands sent to Redis: pipelined and published ones and
// subscriptions too, which hooks of the client do not see, but not what a script calls
// inside the server.
type countedConn struct {
	net.Conn
	count  *atomic.Int64
	parser commandParser
}

// Write passes on and counts the commands that are complete. The client
// writes a connection from one goroutine at a time.
func (c *countedConn) Write(b []byte) (int, error) {
	c.count.Add(c.parser.feed(b))
	return c.Conn.Write(b)
}

// commandParser follows requests that are cut anywhere.
type commandParser struct{ rest []byte }

// feed returns how many commands have become complete. What opens a connection does
// not count: it is paid once, not per operation.
func (p *commandParser) feed(b []byte) (commands int64) {
	p.rest = append(p.rest, b...)
	for len(p.rest) > 0 {
		command, err := proto.Read(bufio.NewReader(bytes.NewReader(p.rest)))
		if err != nil { // it is not complete
			break
		}
		p.rest = p.rest[len(command):]
		words, _ := proto.ReadStrings(command)
		if len(words) > 0 && !slices.Contains([]string{"HELLO", "AUTH", "SELECT", "CLIENT", "PING"}, strings.ToUpper(words[0])) {
			commands++
		}
	}
	return commands
}
