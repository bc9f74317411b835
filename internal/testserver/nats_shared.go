package testserver

import (
	"context"
	"sync"
	"testing"
)

// SharedNATS returns the URL of the NATS server that all tests of this binary share. Tests keep apart by
// their deployments: each database names one of its own, and its stream with it.
func SharedNATS(t testing.TB) string {
	t.Helper()
	url, err := process.nats.get()
	if err != nil {
		t.Fatalf("testserver: shared NATS: %v", err)
	}
	return url
}

// sharedNATS starts on the first call.
type sharedNATS struct {
	once   sync.Once
	server *Server
	err    error
}

func (n *sharedNATS) get() (string, error) {
	n.once.Do(func() {
		var program string
		// Not the context of the test that asks first: the server is for all of them.
		if program, n.err = buildNATS(context.Background()); n.err != nil {
			return
		}
		// Nobody kills this one: it need not wait for the disk.
		n.server, n.err = launch(stderr{}, natsEngine(program), []string{"sync_interval: 2m"})
	})
	if n.err != nil {
		return "", n.err
	}
	return n.server.URL(), nil
}

func (n *sharedNATS) close() {
	if n.server != nil {
		n.server.discard()
	}
}
