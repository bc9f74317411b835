package queue_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"seckill/internal/testserver"
	"seckill/queue"
)

// embeddedPlain is an in-process server without JetStream.
func embeddedPlain(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	must(t, err)
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
		"several":        {queue.Options{URL: "nats://127.0.0.1:1, nats://t0ken-" + password + "@127.0.0.1:2"}, "127.0.0.1:1, 127.0.0.1:2"},
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
			log := &journal{}
			test.options.Deployment, test.options.Log = deployment, log.logger()
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
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	begun := time.Now()
	_, err = queue.Open(t.Context(), queue.Options{URL: "nats://" + listener.Addr().String(), Deployment: deployment, Log: (&journal{}).logger()})
	if err == nil || time.Since(begun) > 10*time.Second {
		t.Errorf("Open: %v after %s", err, time.Since(begun))
	}
}

func TestExternalServerIsWarnedAbout(t *testing.T) {
	t.Parallel()
	guarded := testserver.NATS(t, "authorization: {user: u, password: sEcReT-word}")
	log := &journal{}
	q, err := openQueue(t, queue.Options{URL: "nats://u:sEcReT-word@" + guarded.Addr(), Deployment: deployment, Log: log.logger()})
	must(t, err)
	must(t, q.Publish(t.Context(), some("a", 1)))
	guarded.Kill()
	guarded.Start()
	eventually(t, "it is connected again", func() bool { return q.Ping(t.Context()) == nil })
	if !log.has("level=WARN", "sync_interval") || strings.Contains(log.String(), "sEcReT") {
		t.Errorf("log:\n%s", log)
	}
	if f := newFixture(t, nil); f.log.has("sync_interval") {
		t.Error("the embedded server, which flushes always, is warned about")
	}
}

func TestOldServersAreRefused(t *testing.T) {
	t.Parallel()
	for version, recent := range map[string]bool{
		"2.9.25": false, "2.10.0": true, "2.15.2": true, "v2.11.1": true, "3.0.0-beta": true, "1.4.1": false, "": false, "2": false, "x.y.z": false,
	} {
		if queue.Recent(version) != recent {
			t.Errorf("version %q: recent = %t", version, !recent)
		}
	}
}

var errNoConnection = errors.New("no connection")

type refusing struct{}

func (refusing) InProcessConn() (net.Conn, error) { return nil, errNoConnection }

func TestEmbeddedServerThatIsGone(t *testing.T) {
	t.Parallel()
	_, err := queue.Open(t.Context(), queue.Options{InProcess: refusing{}, Deployment: deployment, Log: (&journal{}).logger()})
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
	log := &journal{}
	q, err := openQueue(t, queue.Options{URL: "nats://u:right@" + server.Addr(), Deployment: deployment, Log: log.logger()})
	must(t, err)
	var l ledger
	consume(t, q, l.persist, queue.ConsumeOptions{})
	must(t, q.Publish(t.Context(), some("a", 1)))
	eventually(t, "it is consumed", func() bool { return len(l.seen()) == 1 })

	server.ReloadNATS(authorized("wrong"))
	eventually(t, "the login is refused", func() bool { return q.Ping(t.Context()) != nil })
	<-time.After(3 * time.Second) // that is how long, with several tries a second
	server.ReloadNATS(authorized("right"))
	eventually(t, "orders are published again", func() bool { return q.Publish(t.Context(), some("b", 1)) == nil })
	eventually(t, "and consumed", func() bool { return len(l.seen()) == 2 })
	select {
	case err := <-q.Lost():
		t.Errorf("lost: %v", err)
	default:
	}
	if !log.has("level=WARN", "uthorization") || !log.has("disconnected") || !log.has("connected again") {
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
	w.say(t, "-ERR 'nobody knows this one'\r\n")
	select {
	case err := <-q.Lost():
		if err == nil || !strings.Contains(err.Error(), "nobody knows") {
			t.Errorf("lost: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("nobody is told")
	}
	if !log.has("level=ERROR", "for good") {
		t.Errorf("log:\n%s", log)
	}

	other, log := atServer(t, server.URL())
	other.Close(t.Context())
	eventually(t, "it is closed", func() bool { return other.Ping(t.Context()) != nil })
	select {
	case err := <-other.Lost():
		t.Errorf("closed on purpose, and lost: %v", err)
	default:
	}
	if log.has("level=ERROR") {
		t.Errorf("log:\n%s", log)
	}
}
