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
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/budget"
	"seckill/internal/poll"
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

const (
	// dialBudget bounds one dial, because start has to say soon which dependency is missing.
	dialBudget = 3 * budget.Look
	// deadPings unanswered, a second apart, end the connection to a hanging server 2 to 3 s after it fell silent;
	// electing another leader takes 4 s at least. A busy server answers pings. A slow one costs a new connection, and
	// publishes keep their ids. While this process stood still, missed pings count as one.
	deadPings = 2

	// leastPayload a server must take: an order of the longest ids, or its letter, is 1 KB; making a stream needs more.
	leastPayload = 4 << 10

	// The oldest server that knows every setting of stream.go, and whose work queues were tested.
	oldestMajor, oldestMinor = 2, 10
)

// connect tries once, because start says which dependency is missing. A lost connection is made again, for ever.
func connect(ctx context.Context, o Options, lost func(error)) (*nats.Conn, error) {
	if o.InProcess == nil {
		if err := checkURLs(o.URL); err != nil {
			return nil, err
		}
	}
	options := []nats.Option{
		nats.Name("seckill " + o.Deployment),
		nats.Timeout(dialBudget),
		nats.MaxReconnects(-1),
		// Passwords are changed on the server and then on clients; the library would give up at the second refusal.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(budget.Blink),
		nats.ReconnectJitter(budget.Blink, budget.Blink),
		// Nothing is buffered while the connection is down: a publish must fail now, and not be sent later.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(budget.Look + o.Slack),
		nats.MaxPingsOutstanding(deadPings),
	}
	options = append(options, handlers(o.Log, lost)...)
	if o.InProcess != nil {
		options = append(options, nats.InProcessServer(o.InProcess))
	} else {
		more, err := o.options()
		if err != nil {
			return nil, err
		}
		options = append(options, more...)
	}
	// The library cannot be given a context: dialBudget bounds it, per server.
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("connect to the order queue: %w", err)
	}
	conn, err := nats.Connect(o.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to the order queue on %s: %w", address(o), err)
	}
	if least := int64(leastPayload); conn.MaxPayload() < least {
		conn.Close()
		return nil, fmt.Errorf("the NATS server on %s takes messages of %d bytes (max_payload), and must take %d",
			address(o), conn.MaxPayload(), least)
	}
	return conn, nil
}

// handlers log what becomes of the connection, and report one closed for good. The library calls one at a time.
func handlers(log *slog.Logger, lost func(error)) []nats.Option {
	var last string
	var until time.Time
	// An error that every try to connect repeats is logged once per budget.Step.
	again := func(err error) bool {
		if err.Error() == last && time.Now().Before(until) {
			return true
		}
		last, until = err.Error(), time.Now().Add(budget.Step)
		return false
	}
	return []nats.Option{
		nats.DisconnectErrHandler(func(conn *nats.Conn, err error) {
			if conn.IsClosed() {
				return // ClosedHandler reports it
			}
			log.Warn("the order queue is disconnected", slog.Any("error", err))
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			if !again(err) {
				log.Warn("the order queue cannot be reached, and is tried again", slog.Any("error", err))
			}
		}),
		nats.ReconnectHandler(func(conn *nats.Conn) {
			last = ""
			log.Info("the order queue is connected again", slog.String("server", redact.Address(conn.ConnectedUrl())))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if !again(err) {
				log.Warn("the order queue reports an error", slog.Any("error", err))
			}
		}),
		nats.ClosedHandler(func(conn *nats.Conn) { lost(conn.LastError()) }),
	}
}

// checkURLs refuses what is no address. Its error does not show it, as the library's would: it may hold a password.
func checkURLs(list string) error {
	for i, text := range strings.Split(list, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return fmt.Errorf("address %d of the order queue is not nats://host:port or tls://host:port", i+1)
		}
	}
	return nil
}

func address(o Options) string {
	if o.InProcess != nil {
		return "the embedded server"
	}
	return redact.Addresses(o.URL)
}

// patiently asks the server until ctx ends, while what fails may pass. A cluster without a leader never answers, even
// later: so each attempt has budget.Call. The error is the last that a server gave, if one did.
func patiently(ctx context.Context, ask func(context.Context) error) error {
	var given error
	return poll.Insist(ctx, budget.Blink, budget.Blink, func() (done bool, err error) {
		attempt, cancel := context.WithTimeout(ctx, budget.Call)
		defer cancel()
		if err = ask(attempt); err == nil || given == nil || !errors.Is(err, context.DeadlineExceeded) {
			given = err
		}
		return err == nil || final(err), given
	})
}

type unfit struct{ error }

// Unwrap lets errors.Is and errors.As see what the server said.
func (u unfit) Unwrap() error { return u.error }

// final reports whether the server would repeat its answer: it is unfit, or refuses for another reason than 503.
func final(err error) bool {
	var refused jetstream.JetStreamError
	if errors.As(err, &refused) && refused.APIError() != nil &&
		refused.APIError().Code != http.StatusServiceUnavailable {
		return true
	}
	return errors.As(err, new(unfit))
}

// checkServer refuses a server that is too old or has no JetStream.
func (q *Queue) checkServer(ctx context.Context) error {
	version := q.conn.ConnectedServerVersion()
	if !recent(version) {
		return unfit{fmt.Errorf("the server is version %q and must be %d.%d or newer", version, oldestMajor,
			oldestMinor)}
	}
	if _, err := q.js.AccountInfo(ctx); err != nil {
		if errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
			errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
			return unfit{fmt.Errorf("the server has no JetStream (for this account): it must be enabled: %w", err)}
		}
		return fmt.Errorf("ask for JetStream: %w", err)
	}
	return nil
}

func recent(version string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d.", &major, &minor)
	return n == 2 && (major > oldestMajor || major == oldestMajor && minor >= oldestMinor)
}

// leaving calls the library, and returns at ctx's deadline. The library misses it while it connects again and waits for
// a hanging server, for dialBudget at most: the call then ends that much after its caller.
func leaving[T any](ctx context.Context, call func(ctx context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ended := make(chan result, 1)
	go func() {
		value, err := call(ctx)
		ended <- result{value, err}
	}()
	select {
	case r := <-ended:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// Access is how the servers are spoken to, and as whom. The zero Access leaves both to the URL.
type Access struct {
	// TLS is required of every server when it is set.
	TLS *tls.Config
	// Credentials is the file of a user's credentials (.creds), NKey that of an nkey's seed. Renewed ones are read.
	Credentials, NKey string
}

func (a Access) options() ([]nats.Option, error) {
	var options []nats.Option
	if a.TLS != nil {
		options = append(options, nats.Secure(a.TLS))
	}
	if a.Credentials != "" {
		options = append(options, nats.UserCredentials(a.Credentials))
	}
	if a.NKey != "" {
		seed, err := nats.NkeyOptionFromSeed(a.NKey)
		if err != nil {
			// The library's error may quote the file.
			return nil, errors.New("the file with the nkey of the order queue holds no seed of a user (SU…)")
		}
		options = append(options, seed)
	}
	return options, nil
}
