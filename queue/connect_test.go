package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"seckill/internal/embedded"
	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/queue"
)

// embeddedPlain is an in-process server without JetStream.
func embeddedPlain(t *testing.T) *server.Server {
	t.Helper()
	s := check.Value(server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true}))(t)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return s
}

func TestStartNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	password := "sEcReT-word"
	guarded := testserver.NATS(t, "authorization: {user: u, password: "+password+"}")
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
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &check.Log{}
			test.options.Deployment, test.options.Log = deployment, log.Logger()
			begun := time.Now()
			_, err := queue.Open(t.Context(), test.options)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("Open: %v, want an error with %q", err, test.want)
			}
			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
			if strings.Contains(err.Error(), password) || strings.Contains(log.String(), password) {
				t.Errorf("a password is shown: %v\n%s", err, log)
			}
		})
	}
}

// Nothing answers behind an open port: start gives up in bounded time.
func TestStartDoesNotWaitForASilentServer(t *testing.T) {
	t.Parallel()
	listener := check.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	begun := time.Now()
	_, err := queue.Open(t.Context(), queue.Options{URL: "nats://" + listener.Addr().String(), Deployment: deployment, Log: (&check.Log{}).Logger()})
	if err == nil || time.Since(begun) > 10*time.Second {
		t.Errorf("Open: %v after %s", err, time.Since(begun))
	}
}

func TestExternalServerIsWarnedAbout(t *testing.T) {
	t.Parallel()
	guarded := testserver.NATS(t, "authorization: {user: u, password: sEcReT-word}")
	log := &check.Log{}
	q := check.Value(openQueue(t, queue.Options{URL: "nats://u:sEcReT-word@" + guarded.Addr(), Deployment: deployment, Log: log.Logger()}))(t)
	must(t, q.Publish(t.Context(), some("a", 1)))
	guarded.Kill()
	guarded.Start()
	check.Eventually(t, "it is connected again", func() bool { return q.Ping(t.Context()) == nil })
	if !log.Has("level=WARN", "sync_interval") || strings.Contains(log.String(), "sEcReT") {
		t.Errorf("log:\n%s", log)
	}
	if f := newFixture(t, nil); f.log.Has("sync_interval") {
		t.Error("the embedded server, which flushes always, is warned about")
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

func TestEmbeddedServerThatIsGone(t *testing.T) {
	t.Parallel()
	_, err := queue.Open(t.Context(), queue.Options{InProcess: refusing{}, Deployment: deployment, Log: (&check.Log{}).Logger()})
	if err == nil || !strings.Contains(err.Error(), "embedded") {
		t.Errorf("Open: %v", err)
	}
}

// authorized are the settings of a server that lets one user in.
func authorized(password string) string {
	return "authorization: {user: u, password: " + password + "}"
}

// The login is refused for some seconds, as while passwords are changed: publishing
// and consuming go on by themselves, and the log says what happened.
func TestRefusedLoginIsTriedAgain(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t, authorized("right"))
	log := &check.Log{}
	q := check.Value(openQueue(t, queue.Options{URL: "nats://u:right@" + server.Addr(), Deployment: deployment, Log: log.Logger()}))(t)
	var l ledger
	consume(t, q, l.persist, queue.ConsumeOptions{})
	must(t, q.Publish(t.Context(), some("a", 1)))
	check.Eventually(t, "it is consumed", func() bool { return len(l.seen()) == 1 })

	server.ReloadNATS(authorized("wrong"))
	check.Eventually(t, "the login is refused", func() bool { return q.Ping(t.Context()) != nil })
	<-time.After(3 * time.Second) // that is how long, with several tries a second
	server.ReloadNATS(authorized("right"))
	check.Eventually(t, "orders are published again", func() bool { return q.Publish(t.Context(), some("b", 1)) == nil })
	check.Eventually(t, "and consumed", func() bool { return len(l.seen()) == 2 })
	select {
	case err := <-q.Lost():
		t.Errorf("lost: %v", err)
	default:
	}
	if !log.Has("level=WARN", "uthorization") || !log.Has("disconnected") || !log.Has("connected again") {
		t.Errorf("log:\n%s", log)
	}
	if n := strings.Count(strings.ToLower(log.String()), "authorization"); n > 10 {
		t.Errorf("the log says it %d times", n)
	}
}

// A connection that the library gives up is reported, and one that was closed on
// purpose is not.
func TestConnectionThatIsClosedForGoodIsReported(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	w := newWire(t, server.Addr())
	q, log := atServer(t, w.url())
	w.Say(t, "-ERR 'nobody knows this one'\r\n")
	select {
	case err := <-q.Lost():
		if err == nil || !strings.Contains(err.Error(), "nobody knows") {
			t.Errorf("lost: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("nobody is told")
	}
	if !log.Has("level=ERROR", "for good") {
		t.Errorf("log:\n%s", log)
	}

	other, log := atServer(t, server.URL())
	other.Close(t.Context())
	check.Eventually(t, "it is closed", func() bool { return other.Ping(t.Context()) != nil })
	select {
	case err := <-other.Lost():
		t.Errorf("closed on purpose, and lost: %v", err)
	default:
	}
	if log.Has("level=ERROR") {
		t.Errorf("log:\n%s", log)
	}
}

// What an embedded server has acknowledged is there when the next one starts.
func TestEmbeddedServerKeepsTheOrders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	for round := range 3 {
		server := check.Value(embedded.StartNATS(dir, log))(t)
		q := check.Value(queue.Open(t.Context(), queue.Options{InProcess: server, Deployment: deployment, Log: log}))(t)
		must(t, q.Publish(t.Context(), some(fmt.Sprintf("r%d", round), 10)))
		if round == 2 {
			var l ledger
			stop := consume(t, q, l.persist, queue.ConsumeOptions{})
			drained(t, q)
			stop()
			l.handedOut(t, 30)
		}
		q.Close(t.Context())
		server.Close()
	}
}

// What a process had in hand when it died is delivered at once when the next
// one starts, because no other process can have it in hand.
func TestEmbeddedServerForgetsWhoHadTheOrders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	server := check.Value(embedded.StartNATS(dir, log))(t)
	options := queue.Options{InProcess: server, Deployment: deployment, Log: log, Alone: true, AckWait: time.Hour}
	q := check.Value(queue.Open(t.Context(), options))(t)
	must(t, q.Publish(t.Context(), some("held", 10)))
	held, died := make(chan struct{}), make(chan struct{})
	stop := consume(t, q, func(_ context.Context, orders []model.Reservation) []error {
		close(held)
		<-died
		return slices.Repeat([]error{context.Canceled}, len(orders))
	}, queue.ConsumeOptions{})
	<-held
	server.Close()
	close(died)
	stop()
	q.Close(t.Context())

	server = check.Value(embedded.StartNATS(dir, log))(t)
	defer server.Close()
	options.InProcess = server
	q = check.Value(queue.Open(t.Context(), options))(t)
	defer q.Close(t.Context())
	var l ledger
	stop = consume(t, q, l.persist, queue.ConsumeOptions{})
	defer stop()
	check.Eventually(t, "they are delivered", func() bool { return len(l.seen()) == 10 })
}

// On a cluster, a stream of one replica becomes one of three when three are
// configured, and never the other way round.
//
//nolint:paralleltest // three servers that elect leaders by time-outs need the machine for themselves
func TestReplicasAreKept(t *testing.T) {
	servers := testserver.NATSCluster(t)
	open := func(replicas int) (*queue.Queue, *check.Log) {
		log := &check.Log{}
		q := check.Value(openQueue(t, queue.Options{URL: servers.URL(), Deployment: deployment, Replicas: replicas, Log: log.Logger()}))(t)
		return q, log
	}
	replicas := func() int {
		stream := check.Value(plain(t, nats.Name("beside"), servers.URL()).Stream(t.Context(), orders))(t)
		return stream.CachedInfo().Config.Replicas
	}
	one, _ := open(1)
	must(t, one.Publish(t.Context(), some("a", 1)))
	three, log := open(3)
	if n := replicas(); n != 3 || !log.Has("setting=num_replicas", "was=1", "is=3") {
		t.Errorf("%d replicas\n%s", n, log)
	}
	open(1)
	check.Equal(t, "replicas, behind an instance that wants one", replicas(), 3)
	// The servers take some ten seconds to agree on a leader of the three.
	check.Eventually(t, "the three accept orders", func() bool { return three.Publish(t.Context(), some("b", 1)) == nil })
	// More messages than a fetch asks for. On replicas a message leaves once they agree that it
	// is delivered, and what the server says of a fetch beside its messages comes before them.
	const waiting = 700
	check.Volley(waiting, func(i int) {
		if err := three.Publish(t.Context(), some(fmt.Sprintf("c%d", i), 1)); err != nil {
			t.Error(err)
		}
	})
	var l ledger
	consume(t, three, l.persist, queue.ConsumeOptions{})
	check.Eventually(t, "all orders came out", func() bool { return len(l.seen()) == 2+waiting })
	if log.Has("cannot be fetched") {
		t.Errorf("a fetch ended before its messages had come\n%s", log)
	}
}

// Several instances start at once on a server that has nothing yet.
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
