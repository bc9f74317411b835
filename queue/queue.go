// Package queue is the promise behind a 202: admitted orders wait in a JetStream stream, flushed to disk before they
// are acknowledged, until a worker has persisted them.
//
// Orders of all vouchers share messages. Those that cannot be stored now are isolated on a subject of their voucher, so
// that no other waits. Publishing answers "stored" or "unknown", never "not stored". Consuming hands every order out
// until it was persisted, maybe several times. Both are safe because the database knows an order by its id.
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/budget"
	"seckill/internal/redact"
	"seckill/internal/refusal"
	"seckill/internal/tracing"
	"seckill/model"
)

// heardWithin is how long a replica counts as there after it was heard: a leader sends a heartbeat each second, and
// believes in who answered for three (nats-server, raft.go, withinLiveWindow). It steps down only after 10 to 20 s.
const heardWithin = 3 * budget.Look

// Options say where the queue is and whose.
type Options struct {
	// URL is nats:// or tls://, or several of one cluster separated by commas. It is not used when InProcess is set.
	URL string
	// Access is how the servers are spoken to, and as whom. It is not used when InProcess is set.
	Access
	// InProcess is a server inside this process.
	InProcess nats.InProcessConnProvider
	// Alone: no other Queue is open on the server. Unacknowledged messages are a dead process's: delivered at once.
	Alone bool
	// Deployment separates deployments that share a server; see model.ModeRecord.
	Deployment string
	// Replicas is how many servers keep each message; 0 is one.
	Replicas int
	// Trace records what is published and persisted; nil records nothing.
	Trace *tracing.Tracer
	Log   *slog.Logger

	// MaxBytes bounds a stream that this start creates; 0 leaves it to the server's max_file_store.
	MaxBytes int64
	// AckWait and Duplicates are for tests, which cannot wait that long; 0 is the setting that stream.go explains.
	AckWait, Duplicates time.Duration
	// Slack is added to each limit of time, for tests on busy machines. An attempt that is repeated has none.
	Slack time.Duration
}

// Queue is a connection to the server and the names of one deployment in it. It is safe for concurrent use.
type Queue struct {
	conn   *nats.Conn
	js     jetstream.JetStream
	names  names
	wanted settings
	trace  *tracing.Tracer
	log    *slog.Logger
	slack  time.Duration // see Options
	close  sync.Once
	closed atomic.Bool // by Close
	lost   chan error
	// refused is the latest message that the server did not store.
	refused *refusal.Latest
}

// Open connects, and makes streams and consumer as stream.go wants them, or fails: also when one cannot be corrected.
func Open(ctx context.Context, o Options) (*Queue, error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Settled+o.Slack)
	defer cancel()
	names, err := namesOf(o.Deployment)
	if err != nil {
		return nil, err
	}
	q := &Queue{
		names: names, wanted: settingsOf(names, o), trace: o.Trace, log: o.Log, slack: o.Slack,
		lost: make(chan error, 1), refused: refusal.New(o.Slack),
	}
	if q.conn, err = connect(ctx, o, q.lose); err != nil {
		return nil, err
	}
	if q.js, err = jetstream.New(q.conn, jetstream.WithDefaultTimeout(budget.Call+o.Slack)); err == nil {
		err = patiently(ctx, func(ctx context.Context) error { return q.begin(ctx, o) })
	}
	if err == nil && o.InProcess == nil {
		q.log.WarnContext(ctx, "the order queue is on an external server, whose sync_interval no client can see: "+
			"unless it is \"always\", orders that were accepted are lost when that machine dies",
			slog.String("server", redact.Address(q.conn.ConnectedUrl())),
			slog.String("version", q.conn.ConnectedServerVersion()))
	}
	if err != nil {
		q.closed.Store(true)
		q.conn.Close()
		return nil, fmt.Errorf("open the order queue on %s: %w", address(o), err)
	}
	return q, nil
}

// Lost yields the error with which the library, without Close, gave the connection up, for example after a breach of
// protocol. It mends other losses. The Queue is of no use then.
func (q *Queue) Lost() <-chan error { return q.lost }

func (q *Queue) lose(err error) {
	if q.closed.Load() {
		return
	}
	err = fmt.Errorf("the connection to the order queue was closed for good: %w", cmp.Or(err, nats.ErrConnectionClosed))
	q.log.Error("the order queue is lost", slog.Any("error", err))
	q.lost <- err
}

func (q *Queue) begin(ctx context.Context, o Options) error {
	if err := q.checkServer(ctx); err != nil {
		return err
	}
	if o.Alone {
		if err := q.startAlone(ctx); err != nil {
			return err
		}
	}
	_, err := q.prepare(ctx)
	return err
}

// Ping asks whether orders could be stored: the server answers, and the stream has a leader and a majority.
func (q *Queue) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Call+q.slack)
	defer cancel()
	stream, err := q.stream(ctx)
	if err == nil {
		err = cmp.Or(led(stream.CachedInfo().Cluster), q.refused.Err())
	}
	if err != nil {
		return unavailable("ask the order queue", err)
	}
	return nil
}

func (q *Queue) stream(ctx context.Context) (jetstream.Stream, error) {
	return leaving(ctx, func(ctx context.Context) (jetstream.Stream, error) { return q.js.Stream(ctx, q.names.orders) })
}

// led fails for a stream that stores nothing now. A server that is alone has no cluster.
func led(c *jetstream.ClusterInfo) error {
	if c == nil {
		return nil
	}
	if c.Leader == "" {
		return errors.New("the stream has no leader")
	}
	there := 1
	for _, replica := range c.Replicas {
		if heard(replica) {
			there++
		}
	}
	if all := 1 + len(c.Replicas); there <= all/2 {
		return fmt.Errorf("the stream has %d of its %d servers, which is no majority", there, all)
	}
	return nil
}

// heard reports whether the leader heard a replica lately. Only a goodbye makes it Offline; unheard ones are at 0 s.
func heard(replica *jetstream.PeerInfo) bool {
	return !replica.Offline && replica.Active <= heardWithin && (replica.Active > 0 || replica.Current)
}

// Close sends what is buffered and ends the connection. Twice is safe. Consume must have returned before.
func (q *Queue) Close(ctx context.Context) {
	q.close.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, budget.Call)
		defer cancel()
		if err := q.conn.FlushWithContext(ctx); err != nil {
			q.log.DebugContext(ctx, "the order queue was closed without a last flush", slog.Any("error", err))
		}
		q.closed.Store(true)
		q.conn.Close()
	})
}

// unavailable is the error of a question that the queue did not answer, or of a change that may be repeated.
func unavailable(action string, err error) error {
	return fmt.Errorf("%s: %w", action, model.Unavailable("The order queue does not answer.", err))
}

// unknown is a publish's error: orders may be stored. It is one for all: nobody may undo an order, sent or not.
func unknown(action string, err error) error {
	return fmt.Errorf("%s: %w", action,
		model.Unavailable("The order queue did not confirm; whether the order is stored is not known yet.",
			fmt.Errorf("%w: %w", model.ErrUnknownOutcome, err)))
}
