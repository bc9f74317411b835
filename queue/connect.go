package queue

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/redact"
)

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
