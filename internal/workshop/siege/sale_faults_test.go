//go:build faults

//part:siege

package siege_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/api"
	"seckill/internal/token"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

const (
	// closedBuyers is how many buy at once when the capacity is measured: more do not make it higher.
	closedBuyers = 64
	// mostWaiting bounds the buyers who have no answer yet. One more is refused by the load itself and counted.
	mostWaiting = 4000
	// streets is from how many addresses the crowd comes.
	streets = 50
)

// sample is one buyer's answer.
type sample struct {
	at       time.Time // when the buyer pressed the button
	took     time.Duration
	accepted bool
}

// figures are of one part of a sale.
type figures struct {
	length   time.Duration
	accepted int
	others   int             // every other answer, and none
	took     []time.Duration // of those accepted, in order
}

func (f figures) rate() float64      { return float64(f.accepted) / f.length.Seconds() }
func (f figures) p50() time.Duration { return f.quantile(50) }
func (f figures) p99() time.Duration { return f.quantile(99) }
func (f figures) quantile(percent int) time.Duration {
	if len(f.took) == 0 {
		return 0
	}
	return f.took[min(len(f.took)-1, len(f.took)*percent/100)]
}

// sale is a steady crowd: an open model, in which buyers come at their time whatever the answers take.
type sale struct {
	buy  func(ctx context.Context) bool
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	samples []sample
}

// open starts a sale of so many orders a second.
func (c *crowd) open(ctx context.Context, perSecond int) *sale {
	ctx, stop := context.WithCancel(ctx)
	s := &sale{buy: c.buy, stop: stop, done: make(chan struct{})}
	go s.run(ctx, perSecond)
	return s
}

func (s *sale) run(ctx context.Context, perSecond int) {
	defer close(s.done)
	var (
		buyers  sync.WaitGroup
		waiting atomic.Int64
		began   = time.Now()
		tick    = time.NewTicker(2 * time.Millisecond)
	)
	defer buyers.Wait()
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int(time.Since(began).Seconds() * float64(perSecond)); n < due; n++ {
			at := began.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
			if waiting.Load() >= mostWaiting {
				s.note(sample{at: at})
				continue
			}
			waiting.Add(1)
			buyers.Go(func() {
				defer waiting.Add(-1)
				accepted := s.buy(context.WithoutCancel(ctx))
				s.note(sample{at: at, took: time.Since(at), accepted: accepted})
			})
		}
	}
}

func (s *sale) note(one sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, one)
}

// end lets the last buyers have their answers.
func (s *sale) end() {
	s.stop()
	<-s.done
}

// between are the figures of those who pressed the button from one moment to another.
func (s *sale) between(from, to time.Time) figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := figures{length: to.Sub(from)}
	for _, one := range s.samples {
		switch {
		case one.at.Before(from) || !one.at.Before(to):
		case one.accepted:
			f.accepted++
			f.took = append(f.took, one.took)
		default:
			f.others++
		}
	}
	slices.Sort(f.took)
	return f
}

// crowd are buyers of one voucher who come from many addresses. Each buys once.
type crowd struct {
	url, voucher string
	tokens       *token.Authority
	clients      []*http.Client
	next         atomic.Int64
	yes          atomic.Int64
	refusals     sync.Map // what was not accepted, by status and code, to tell when a test fails
}

func newCrowd(url, voucher string, tokens *token.Authority) *crowd {
	c := &crowd{url: url, voucher: voucher, tokens: tokens}
	for n := range streets {
		c.clients = append(c.clients, clientFrom(fmt.Sprintf("127.0.1.%d", n+1), 200))
	}
	return c
}

// clientFrom makes a client whose connections come from an address of this machine.
func clientFrom(addr string, connections int) *http.Client {
	client := remote.NewClient(addr, connections)
	client.Timeout = 20 * time.Second
	client.Transport.(*http.Transport).IdleConnTimeout = 3 * time.Second // before the service closes it
	return client
}

// buy lets a new user buy, and reports whether that was accepted.
func (c *crowd) buy(ctx context.Context) bool {
	n := c.next.Add(1)
	got, err := c.place(ctx, n)
	if got.Sells() {
		c.yes.Add(1)
		return true
	}
	why := strconv.Itoa(got.Status) + " " + string(got.Code())
	if err != nil {
		why = err.Error()[max(0, len(err.Error())-40):]
	}
	count, _ := c.refusals.LoadOrStore(why, new(atomic.Int64))
	count.(*atomic.Int64).Add(1)
	return false
}

func (c *crowd) place(ctx context.Context, n int64) (api.Answer, error) {
	bearer, err := c.tokens.Issue(token.Claims{Subject: "buyer" + strconv.FormatInt(n, 10), Role: model.RoleUser}, time.Hour)
	if err != nil {
		return api.Answer{}, err
	}
	return api.Send(ctx, c.clients[n%int64(len(c.clients))], http.MethodPost, c.url+"/api/v1/vouchers/"+c.voucher+"/seckill", bearer, nil)
}

// told is what buyers heard who were not accepted.
func (c *crowd) told() string {
	var all []string
	c.refusals.Range(func(why, count any) bool {
		all = append(all, fmt.Sprintf("%s: %d", why, count.(*atomic.Int64).Load()))
		return true
	})
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// closed is how many orders a second are accepted when so many buyers each buy again as soon as they have an answer.
func (c *crowd) closed(ctx context.Context, buyers int, length time.Duration) int {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var (
		all   sync.WaitGroup
		count atomic.Int64
	)
	for range buyers {
		all.Go(func() {
			for ctx.Err() == nil {
				if c.buy(context.WithoutCancel(ctx)) && ctx.Err() == nil {
					count.Add(1)
				}
			}
		})
	}
	all.Wait()
	return int(float64(count.Load()) / length.Seconds())
}
