package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"seckill/internal/embedded"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
)

func embeddedPlain(t *testing.T) *server.Server {
	t.Helper()
	s := check.Value(server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true}))(t)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	check.Need(t, s.ReadyForConnections(check.Deadline), "the server does not start")
	return s
}

func TestStartNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	password := "sEcReT-word"
	guarded := testserver.NATS(t, "authorization: {user: u, password: "+password+"}")
	silent := check.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = silent.Close() })
	tests := map[string]struct {
		options queue.Options
		want    string
	}{
		"nobody listens": {queue.Options{URL: "nats://user:" + password + "@127.0.0.1:1"}, "127.0.0.1:1"},
		"several":        {queue.Options{URL: "nats://127.0.0.1:1, nats://t0ken-" + password + "@127.0.0.1:2"}, "nats://127.0.0.1:1,nats://***@127.0.0.1:2"},
		"wrong password": {queue.Options{URL: "nats://u:not" + password + "@" + guarded.Addr()}, "uthorization"},
		"no address":     {queue.Options{URL: ""}, "address 1"},
		"no scheme":      {queue.Options{URL: "nats://127.0.0.1:1,user:" + password + "@127.0.0.1"}, "address 2"},
		"other scheme":   {queue.Options{URL: "http://user:" + password + "@127.0.0.1"}, "address 1"},
		"not parseable":  {queue.Options{URL: "nats://user:" + password + "%@127.0.0.1:1"}, "address 1"},
		"no JetStream":   {queue.Options{InProcess: embeddedPlain(t)}, "no JetStream"},
		"not embedded":   {queue.Options{InProcess: refusing{}}, "embedded"},
		"takes no order": {queue.Options{URL: testserver.NATS(t, "max_payload: 2KB").URL()}, "max_payload"},
		"says nothing":   {queue.Options{URL: "nats://" + silent.Addr().String()}, silent.Addr().String()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := onServer(t, test.options)
			f.options.Slack = 0
			ctx := check.Context(t)
			_, err := queue.Open(ctx, f.options)
			if err == nil || !strings.Contains(err.Error(), test.want) || ctx.Err() != nil {
				t.Fatalf("Open: %v, want an error with %q by itself", err, test.want)
			}
			check.That(t, !strings.Contains(err.Error(), password) && !strings.Contains(f.log.String(), password),
				"a password is shown: %v\n%s", err, f.log)
		})
	}
}

func TestOldServersAreRefused(t *testing.T) {
	t.Parallel()
	for version, recent := range map[string]bool{
		"2.9.25": false, "2.10.0": true, "2.15.2": true, "v2.11.1": true, "3.0.0-beta": true, "1.4.1": false, "": false, "2": false, "x.y.z": false,
	} {
		check.Equal(t, fmt.Sprintf("version %q is recent", version), queue.Recent(version), recent)
	}
}

var errNoConnection = errors.New("no connection")

type refusing struct{}

func (refusing) InProcessConn() (net.Conn, error) { return nil, errNoConnection }

func authorized(password string) string {
	return "authorization: {user: u, password: " + password + "}"
}

// The server is away, then refuses the login again and again: publishing and consuming go on, and the log says why.
func TestRefusedLoginIsTriedAgain(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t, authorized("right"))
	w := newWire(t, server.Addr())
	f := at(t, "nats://u:right@"+w.Addr())
	var l ledger
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	published := func(name string) func() bool {
		return func() bool { return f.Publish(t.Context(), some(name, 1)) == nil }
	}
	check.Eventually(t, "orders are published", published("a"))
	server.Kill()
	server.Start()
	check.Eventually(t, "it is connected again", published("b"))

	server.ReloadNATS(authorized("wrong"))
	check.Eventually(t, "the login is refused", func() bool { return f.Ping(t.Context()) != nil })
	before := w.dials.Load()
	check.Eventually(t, "it is tried again and again", func() bool { return w.dials.Load() > before+5 })
	server.ReloadNATS(authorized("right"))
	check.Eventually(t, "orders are published again", published("c"))
	check.Eventually(t, "and consumed", func() bool { return len(l.seen()) == 3 })
	select {
	case err := <-f.Lost():
		t.Errorf("lost: %v", err)
	default:
	}
	check.Eventually(t, "the log tells what happened", func() bool {
		return f.log.Has("level=WARN", "uthorization") && f.log.Has("disconnected") && f.log.Has("connected again") &&
			f.log.Has("level=WARN", "sync_interval")
	})
	check.Equal(t, "the log shows the password", strings.Contains(f.log.String(), "u:right"), false)
}

// A connection that the library gives up is reported, and one that was closed on purpose is not.
func TestConnectionThatIsClosedForGoodIsReported(t *testing.T) {
	t.Parallel()
	server := newFixture(t, nil)
	w := newWire(t, strings.TrimPrefix(server.options.URL, "nats://"))
	f := onServer(t, queue.Options{URL: w.url(), Deployment: server.options.Deployment})
	q := f.open(t, nil)
	w.Say(t, "-ERR 'nobody knows this one'\r\n")
	if err := check.Receive(t, "who uses it is told", q.Lost()); err == nil ||
		!strings.Contains(err.Error(), "nobody knows") {
		t.Errorf("lost: %v", err)
	}
	check.That(t, f.log.Has("level=ERROR", "for good"), "log:\n%s", f.log)

	server.Close(t.Context())
	check.Eventually(t, "it is closed", func() bool { return server.Ping(t.Context()) != nil })
	select {
	case err := <-server.Lost():
		t.Errorf("closed on purpose, and lost: %v", err)
	default:
	}
	check.That(t, !server.log.Has("level=ERROR"), "log:\n%s", server.log)
}

// What an embedded server acknowledged is there at its next start. What was in hand is then delivered at once.
func TestEmbeddedServerKeepsTheOrders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := check.Value(embedded.StartNATS(dir, slog.New(slog.DiscardHandler)))(t)
	f := onServer(t, queue.Options{InProcess: server, Alone: true})
	f.options.AckWait = time.Hour
	q := f.open(t, nil)
	check.Must(t, q.Publish(t.Context(), some("held", 10)))
	held, died := make(chan struct{}), make(chan struct{})
	stop := consume(t, q, func(_ context.Context, orders []model.Reservation) []error {
		close(held)
		<-died
		return slices.Repeat([]error{outage()}, len(orders))
	}, queue.ConsumeOptions{})
	<-held
	check.Must(t, q.Publish(t.Context(), some("waiting", 10)))
	server.Close()
	close(died)
	stop()
	q.Close(t.Context())

	server = check.Value(embedded.StartNATS(dir, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(server.Close)
	f.options.InProcess = server
	var l ledger
	consume(t, f.open(t, nil), l.persist, queue.ConsumeOptions{})
	check.Eventually(t, "they are delivered", func() bool { return len(l.seen()) == 20 })
	check.Equal(t, "an embedded server, which flushes always, is warned about", f.log.Has("sync_interval"), false)
}

func TestInstancesStartTogether(t *testing.T) {
	t.Parallel()
	f := bare(t)
	var starters sync.WaitGroup
	for i := range 8 {
		starters.Go(func() {
			q, err := f.tryOpen(t, nil)
			if err == nil {
				err = q.Publish(t.Context(), some(fmt.Sprintf("i%d", i), 2))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	starters.Wait()
	handOut(t, f.open(t, nil)).handedOut(t, 16)
}

func written(t *testing.T, content []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	check.Must(t, os.WriteFile(name, content, 0o600))
	return name
}

func public(t *testing.T, pair nkeys.KeyPair) string {
	t.Helper()
	return check.Value(pair.PublicKey())(t)
}

// operated is a server whose users are named by credentials, and those of one.
func operated(t *testing.T) (server *testserver.Server, credentials string) {
	t.Helper()
	operator, account := check.Value(nkeys.CreateOperator())(t), check.Value(nkeys.CreateAccount())(t)
	system, user := check.Value(nkeys.CreateAccount())(t), check.Value(nkeys.CreateUser())(t)
	operatorJWT := check.Value(jwt.NewOperatorClaims(public(t, operator)).Encode(operator))(t)
	systemJWT := check.Value(jwt.NewAccountClaims(public(t, system)).Encode(operator))(t)
	claims := jwt.NewAccountClaims(public(t, account))
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
	}
	accountJWT := check.Value(claims.Encode(operator))(t)
	userJWT := check.Value(jwt.NewUserClaims(public(t, user)).Encode(account))(t)
	server = testserver.NATS(t, "operator: "+operatorJWT, "system_account: "+public(t, system), "resolver: MEMORY",
		"resolver_preload: {"+public(t, system)+": "+systemJWT+", "+public(t, account)+": "+accountJWT+"}")
	return server, written(t, check.Value(jwt.FormatUserConfig(userJWT, check.Value(user.Seed())(t)))(t))
}

func TestUserOfCredentials(t *testing.T) {
	t.Parallel()
	server, credentials := operated(t)
	f := onServer(t, queue.Options{URL: server.URL(), Access: queue.Access{Credentials: credentials}})
	check.Must(t, f.open(t, nil).Publish(t.Context(), some("a", 1)))
	events := check.Value(queue.OpenEvents(t.Context(), queue.EventOptions{
		URL: server.URL(), Access: f.options.Access, Stream: "EVENTS", Deployment: f.options.Deployment,
		Log: f.log.Logger(),
	}))(t)
	events.Close()

	_, err := f.tryOpen(t, func(o *queue.Options) { o.Access = queue.Access{} })
	check.That(t, err != nil && strings.Contains(err.Error(), "uthorization"), "nobody is let in: %v", err)
}

func TestUserOfNKey(t *testing.T) {
	t.Parallel()
	user, other := check.Value(nkeys.CreateUser())(t), check.Value(nkeys.CreateUser())(t)
	account := check.Value(nkeys.CreateAccount())(t)
	server := testserver.NATS(t, "authorization: {users: [{nkey: "+public(t, user)+"}]}")
	open := func(seed []byte) error {
		f := onServer(t, queue.Options{URL: server.URL(), Access: queue.Access{NKey: written(t, seed)}})
		_, err := f.tryOpen(t, nil)
		if said := f.log.String(); strings.Contains(said, string(seed)) ||
			err != nil && strings.Contains(err.Error(), string(seed)) {
			t.Errorf("the seed is told: %v\n%s", err, said)
		}
		return err
	}
	check.Must(t, open(check.Value(user.Seed())(t)))
	for want, seed := range map[string][]byte{
		"uthorization":         check.Value(other.Seed())(t),
		"holds no seed":        check.Value(account.Seed())(t),
		"seed of a user (SU…)": []byte("SUthisIsNoSeedAtAll"),
	} {
		if err := open(seed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
