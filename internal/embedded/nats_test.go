package embedded_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/embedded"
	"seckill/internal/workshop/check"
)

func jetStream(t *testing.T, server *embedded.NATS) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	conn := check.Value(nats.Connect("", nats.InProcessServer(server)))(t)
	t.Cleanup(conn.Close)
	js := check.Value(jetstream.New(conn))(t)
	return conn, js
}

func TestNATSKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	log := &check.Log{}
	for round := range 3 {
		server, err := embedded.StartNATS(dir, log.Logger())
		check.Must(t, err)
		conn, js := jetStream(t, server)
		if round == 0 {
			check.Must(t, check.ErrorOf(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})))
		}
		ack, err := js.Publish(t.Context(), "s", []byte("x"))
		if err != nil || ack.Sequence != uint64(round+1) {
			t.Errorf("round %d: sequence %+v, %v", round, ack, err)
		}
		conn.Close()
		for range 2 {
			server.Close()
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "nats")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v; want it private", info, err)
	}
	if text := log.String(); !strings.Contains(text, "level=DEBUG") || strings.Contains(text, "level=ERROR") || strings.Contains(text, "level=INFO") {
		t.Errorf("log:\n%s", text)
	}
}

func TestNATSFlushesIsBoundedAndListensNowhere(t *testing.T) {
	t.Parallel()
	server, err := embedded.StartNATS(t.TempDir(), slog.New(slog.DiscardHandler))
	check.Must(t, err)
	t.Cleanup(server.Close)
	if !server.FlushesAlways() {
		t.Error("it acknowledges before its disk has the message")
	}
	conn, js := jetStream(t, server)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", MaxBytes: 2 << 30}); err == nil {
		t.Error("its store is not bounded")
	}
	if addr := conn.ConnectedAddr(); addr != "pipe" {
		t.Errorf("it is reached at %q", addr)
	}
	check.Equal(t, "it listens", server.Listens(), false)
}

func TestNATSRefusesADirectoryItCannotUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "nats"), []byte("a file"), 0o600))
	log := slog.New(slog.DiscardHandler)
	if _, err := embedded.StartNATS(dir, log); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "nats")) {
		t.Errorf("where a file is in the way: %v", err)
	}

	taken := t.TempDir()
	first, err := embedded.StartNATS(taken, log)
	check.Must(t, err)
	t.Cleanup(first.Close)
	if _, err := embedded.StartNATS(taken, log); err == nil || !strings.Contains(err.Error(), "another process has") {
		t.Errorf("a directory that is in use: %v", err)
	}

	// What only the server itself finds out.
	spoiled := t.TempDir()
	check.Must(t, os.MkdirAll(filepath.Join(spoiled, "nats"), 0o700))
	check.Must(t, os.WriteFile(filepath.Join(spoiled, "nats", "jetstream"), []byte("a file"), 0o600))
	if _, err := embedded.StartNATS(spoiled, log); err == nil || !strings.Contains(err.Error(), filepath.Join(spoiled, "nats")) {
		t.Errorf("a store that the server cannot open: %v", err)
	}
}
