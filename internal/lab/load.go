package lab

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// loadTerms is how hard one process works.
type loadTerms struct {
	Workers    int           `json:"workers"`
	Operations int           `json:"operations"` // of each worker
	Duration   time.Duration `json:"duration"`   // after which no operation begins
	Think      time.Duration `json:"think"`      // the longest; the mean is half of it
	Seed       uint64        `json:"seed"`       // of the think times
	Process    uint64        `json:"process"`    // which of the processes this is
}

// half of the work goes to each of two processes.
func (l loadTerms) split() [2]loadTerms {
	first, second := l, l
	second.Workers = l.Workers / 2
	first.Workers = l.Workers - second.Workers
	second.Process = 1
	return [2]loadTerms{first, second}
}

// run does the work of one process.
func (l loadTerms) run(ctx context.Context, worker performer) (tally, error) {
	var mu sync.Mutex
	var total tally
	ending := time.Now().Add(l.Duration)
	group, ctx := errgroup.WithContext(ctx)
	for range l.Workers {
		group.Go(func() error {
			var mine tally
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				total.merge(mine)
			}()
			for n := 0; n < l.Operations && time.Now().Before(ending); n++ {
				done, err := worker.perform(ctx)
				if err != nil {
					return err
				}
				mine.add(done)
			}
			return nil
		})
	}
	err := group.Wait()
	return total, err
}

// thinker is the pause of the free run: it thinks between reading and writing,
// and stops nowhere else.
func (l loadTerms) thinker() pause {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(l.Seed, l.Process)) //nolint:gosec // repeatable on purpose
	return func(ctx context.Context, p point) error {
		if p != pointRead || l.Think <= 0 {
			return nil
		}
		mu.Lock()
		d := time.Duration(random.Int64N(int64(l.Think)))
		mu.Unlock()
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// crew is one process of the free run, ready to start.
type crew struct {
	run   func(ctx context.Context) (tally, error)
	close func() error
}

// newLocalCrew works in this process.
func newLocalCrew(ctx context.Context, s strategy, with setup, l loadTerms) (crew, error) {
	with.pause = l.thinker()
	worker, err := s.open(ctx, with)
	if err != nil {
		return crew{}, err
	}
	return crew{run: func(ctx context.Context) (tally, error) { return l.run(ctx, worker) }, close: worker.close}, nil
}

// freeRun lets two processes work side by side and times them.
func freeRun(ctx context.Context, crews []crew) (total tally, took time.Duration, err error) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for _, c := range crews {
		group.Go(func() error {
			t, err := c.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			total.merge(t)
			return err
		})
	}
	err = group.Wait()
	return total, time.Since(began), err
}

func closeCrews(crews []crew) error {
	errs := make([]error, 0, len(crews))
	for _, c := range crews {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// commandCount counts the commands sent to Redis over counted connections:
// pipelined and published ones and subscriptions too, which hooks of the client
// do not see, but not what a script calls inside the server.
type commandCount struct{ sent atomic.Int64 }

// countedConn reads along with what is written.
type countedConn struct {
	net.Conn
	count  *commandCount
	parser commandParser
}

// Write passes on and counts the commands whose name is complete. The client
// writes a connection from one goroutine at a time.
func (c *countedConn) Write(b []byte) (int, error) {
	c.count.sent.Add(c.parser.feed(b))
	return c.Conn.Write(b)
}

// commandParser follows the requests of RESP (https://redis.io/docs/latest/develop/reference/protocol-spec/):
// an array `*<n>\r\n` of bulk strings `$<length>\r\n<bytes>\r\n`, cut anywhere.
type commandParser struct {
	number    int    // being read
	arguments int    // still to come of this command; 0: a command begins
	skip      int    // bytes of an argument still to come, with its line end
	inNumber  bool   // between a '*' or '$' and its line end
	first     bool   // the argument is the command's name
	name      []byte // of the command
}

// feed returns how many commands have become known.
func (p *commandParser) feed(b []byte) (commands int64) {
	for len(b) > 0 {
		if p.skip > 0 {
			n := min(p.skip, len(b))
			if p.first {
				p.name = append(p.name, b[:n]...)
			}
			b, p.skip = b[n:], p.skip-n
			if p.skip == 0 {
				if p.first && counts(string(p.name)) {
					commands++
				}
				p.first, p.name = false, p.name[:0]
				p.arguments--
			}
			continue
		}
		c := b[0]
		b = b[1:]
		switch {
		case c == '*' && !p.inNumber:
			p.inNumber, p.number, p.first = true, 0, true
		case c == '$' && !p.inNumber:
			p.inNumber, p.number = true, 0
		case c >= '0' && c <= '9':
			p.number = 10*p.number + int(c-'0')
		case c == '\n':
			p.inNumber = false
			if p.arguments == 0 {
				p.arguments = p.number
			} else {
				p.skip = p.number + len("\r\n")
			}
		}
	}
	return commands
}

// counts leaves out what opens a connection: it is paid once, not per operation.
func counts(name string) bool {
	switch strings.ToUpper(strings.TrimSuffix(name, "\r\n")) {
	case "HELLO", "AUTH", "SELECT", "CLIENT", "PING":
		return false
	}
	return true
}
