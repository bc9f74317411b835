package testserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
)

// kind says how a shared server is found or made.
type kind struct {
	variable string // of the environment, with the address of the one that the run has
	url      string // as in engine
	launch   func() (*Server, error)
}

func sharedDatabase() kind { return kind{"TESTSERVER_DATABASE", "", launchSharedDatabase} }
func sharedRedis() kind    { return kind{"TESTSERVER_REDIS", redisURL, launchSharedRedis} }
func sharedNATS() kind     { return kind{"TESTSERVER_NATS", natsURL, launchSharedNATS} }

// shared is a server that many tests use. When the run has one, it is that one. Else this process starts one of its own
// when the first test asks.
type shared struct {
	once   sync.Once
	server *Server
	err    error
}

func (s *shared) get(t testing.TB, k kind) *Server {
	t.Helper()
	if err := s.open(k); err != nil {
		t.Fatalf("testserver: shared server: %v", err)
	}
	return s.server
}

func (s *shared) open(k kind) error {
	s.once.Do(func() {
		if addr := os.Getenv(k.variable); addr != "" {
			s.server, s.err = attach(addr, k.url)
			return
		}
		s.server, s.err = k.launch()
	})
	return s.err
}

// attach names a server that another process runs. Only where it is can be asked of it.
func attach(addr, url string) (*Server, error) {
	_, number, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address of a shared server: %w", err)
	}
	p, err := strconv.Atoi(number)
	if err != nil {
		return nil, fmt.Errorf("port of a shared server %s: %w", addr, err)
	}
	return &Server{engine: engine{url: url}, port: port{number: p}}, nil
}

// close stops a server that this process started.
func (s *shared) close() {
	if s.server != nil && s.server.child != nil {
		s.server.discard()
	}
}

// Share starts the servers that all test binaries of a run share, and builds the program for them, in a directory where
// they build it with further tags. environ tells the binaries where all this is, and end stops the servers.
func Share() (environ []string, end func() error, err error) {
	process.adopt()
	all := []struct {
		*shared
		kind
	}{{&process.database, sharedDatabase()}, {&process.redis, sharedRedis()}, {&process.nats, sharedNATS()}}
	programs, err := process.dir("programs")
	if err != nil {
		return nil, nil, err
	}
	var starting sync.WaitGroup
	errs := make([]error, len(all)+1)
	starting.Go(func() { _, errs[len(all)] = build(programs, "") })
	for i, one := range all {
		starting.Go(func() { errs[i] = one.open(one.kind) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, nil, errors.Join(err, process.close())
	}
	environ = append(environ, programsVariable+"="+programs)
	for _, one := range all {
		environ = append(environ, one.variable+"="+one.server.Addr())
	}
	return environ, process.close, nil
}
