package repair

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"seckill/internal/poll"
	"seckill/internal/telemetry"
)

const (
	// clockEvery is between two comparisons of the clocks, and clockTimeout bounds one.
	clockEvery   = 5 * time.Second
	clockTimeout = clockEvery / 2
	// clockLeap is by how much the database's clock is ahead all at once when it has leapt: no order is to be paid in less.
	clockLeap = time.Second
)

// Clocks compares the clocks of the database and of Redis with that of this instance, for operators. It also notices when the
// database's clock leaps ahead: against the monotonic clock of this process, which nobody sets.
type Clocks struct {
	Database, Redis func(ctx context.Context) (time.Time, error)
	Metrics         *telemetry.Gauges
	Log             *slog.Logger

	mu    sync.Mutex
	at    time.Time     // when the database's clock was last read and was right
	db    time.Time     // what it said
	since time.Time     // since when it is ahead of that; zero: it is not
	ahead time.Duration // by how much
}

// Run compares until ctx ends.
func (c *Clocks) Run(ctx context.Context) {
	c.compare(ctx)
	poll.Every(ctx, clockEvery, func() { c.compare(ctx) })
}

func (c *Clocks) compare(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	for server, read := range map[string]func(context.Context) (time.Time, error){"database": c.Database, "redis": c.Redis} {
		asked := time.Now()
		now, err := read(ctx)
		if err != nil {
			continue // others say that the server is away
		}
		c.Metrics.WithLabelValues(server).Set(now.Sub(asked.Add(time.Since(asked) / 2)).Seconds())
		if server == "database" {
			c.saw(ctx, now, asked)
		}
	}
}

// saw takes a reading of the database's clock that was asked for at an instant.
func (c *Clocks) saw(ctx context.Context, now, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := now.Sub(c.db) - time.Since(c.at) // by that at the least: the question took a while
	leapt := !c.at.IsZero() && ahead > clockLeap
	switch {
	case leapt && c.since.IsZero():
		c.since, c.ahead = time.Now(), ahead
		c.Log.WarnContext(ctx, "the database's clock has leapt ahead: orders whose window is shorter expire when they have had that time", slog.Duration("by", ahead))
	case leapt && time.Since(c.since) < c.ahead:
		c.ahead = max(c.ahead, ahead)
	default: // or it is so for as long as it leapt, and every order has had its time
		c.at, c.db, c.since, c.ahead = asked, now, time.Time{}, 0
	}
}

// robbed reports whether a leap of the database's clock, and not time, has ended the window of an order.
func (c *Clocks) robbed(window time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead > window && time.Since(c.since) < window
}
