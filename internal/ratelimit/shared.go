package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/lane"
	"seckill/internal/telemetry"
)

const (
	// A second's worth of questions may wait; more are not asked.
	maxAsks      = 4096
	asksTogether = 128
	askers       = 2
)

// Ask asks for one event of a sender, and reports others that it had before.
type Ask struct {
	Key      string
	Emission time.Duration // in which one event is given back
	Capacity time.Duration // in which all that may come at once are
	Used     int64         // events before, not reported yet
}

// Verdict is the answer to an Ask.
type Verdict struct {
	Wait time.Duration // zero: the event is allowed, and counted
	Left int64         // events that may follow at once
}

// Shared asks what the instances share, for all limiters of an instance. It never makes a request wait longer than
// budget.Glance, and hardly delays it while Redis does not answer.
type Shared struct {
	group    *lane.Group[Ask, Verdict]
	began    time.Time
	quiet    atomic.Int64 // until when Redis is not asked, in ns since began; 0: it may be asked
	trouble  telemetry.Trouble
	failures prometheus.Counter
	log      *slog.Logger
}

// errQuiet says that the latest failure was a moment ago.
var errQuiet = errors.New("the shared limits do not answer")

// NewShared asks through take, which answers all asks in order or fails. Close ends it.
func NewShared(
	take func(ctx context.Context, asks []Ask) ([]Verdict, error), metrics prometheus.Registerer, log *slog.Logger,
) *Shared {
	s := &Shared{log: log, began: time.Now(), failures: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "seckill_shared_limit_failures_total",
		Help: "Questions to the limits that the instances share that failed: those requests were limited by this instance alone.",
	})}
	metrics.MustRegister(s.failures)
	s.group = lane.New(take, lane.Options{
		Writers: askers, MaxBatch: asksTogether, MaxQueue: maxAsks, Timeout: budget.Glance,
	})
	return s
}

// Close ends the questions under way.
func (s *Shared) Close(ctx context.Context) { s.group.Close(ctx) }

// ask fails fast while nobody answers.
func (s *Shared) ask(ctx context.Context, ask Ask) (Verdict, error) {
	now := time.Since(s.began)
	quiet := s.quiet.Load()
	if quiet != 0 && (now < time.Duration(quiet) || !s.quiet.CompareAndSwap(quiet, int64(now+budget.Look))) {
		return Verdict{}, errQuiet
	}
	// A client that hangs up says nothing about Redis.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Glance)
	defer cancel()
	verdict, err := s.group.Do(limited, ask)
	s.trouble.Note(ctx, s.log, err, "rate limits count this instance alone: Redis does not answer", "rate limits count all instances again")
	if err != nil {
		s.failures.Inc()
		s.quiet.Store(int64(time.Since(s.began) + budget.Look))
		return Verdict{}, err
	}
	if quiet != 0 {
		s.quiet.Store(0)
	}
	return verdict, nil
}
