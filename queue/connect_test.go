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
