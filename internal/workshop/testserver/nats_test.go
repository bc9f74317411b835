package testserver_test

import (
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// openNATS connects anew: a test that kills its server wants no client that reconnects behind its back.
func openNATS(t *testing.T, server *testserver.Server) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(server.URL(), nats.NoReconnect())
	check.Must(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	check.Must(t, err)
	return js
}

func TestNATSLives(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	ctx, addr := t.Context(), server.Addr()
	js := openNATS(t, server)
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func()
		kept bool
	}{
		{"crash", func() { server.Kill(); server.Start() }, true},
		{"orderly restart", func() { server.Stop(); server.Start() }, true},
		{"restart of a paused one", func() { server.Pause(); server.Stop(); server.Start() }, true},
		{"start of a running one", func() { server.Start() }, true},
		{"restart empty", func() { server.Kill(); server.ClearData(); server.Start() }, false},
	} {
		step.do()
		if server.Addr() != addr {
			t.Fatalf("%s: address changed from %s to %s", step.name, addr, server.Addr())
		}
		stream, err := openNATS(t, server).Stream(ctx, "S")
		if kept := err == nil && stream.CachedInfo().State.Msgs == 1; kept != step.kept {
			t.Fatalf("%s: the message is there = %t, want %t (%v)", step.name, kept, step.kept, err)
		}
	}
}

func TestPausedNATSIsSilent(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	js := openNATS(t, server)
	ask := func() error {
		_, err := js.AccountInfo(check.Expiring(t))
		return err
	}
	server.Pause()
	// The signal reaches one thread after the other: the first questions may still be answered.
	check.Eventually(t, "a paused server does not answer", func() bool { return ask() != nil })
	server.Resume()
	if _, err := js.AccountInfo(t.Context()); err != nil {
		t.Fatalf("after Resume: %v", err)
	}
}

func TestNATSRunsOnItsFile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		settings []string
		store    int64
	}{
		{nil, 4 << 30},
		{[]string{"max_file_store: 1MB"}, 1 << 20},
	} {
		server := testserver.NATS(t, test.settings...)
		_, err := openNATS(t, server).CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", MaxBytes: test.store})
		if err != nil {
			t.Errorf("%v: a stream of %d bytes: %v", test.settings, test.store, err)
		}
		_, err = openNATS(t, server).CreateStream(t.Context(), jetstream.StreamConfig{Name: "T", MaxBytes: test.store})
		if err == nil {
			t.Errorf("%v: the store is larger than %d bytes", test.settings, test.store)
		}
	}
}

func TestNATSReadsNewSettingsWhileItRuns(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t, "authorization: {user: a, password: old}")
	pid := server.PID()
	opens := func(password string) bool {
		conn, err := nats.Connect(server.URL(), nats.UserInfo("a", password))
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	if !opens("old") || opens("new") {
		t.Fatal("it does not ask for the password that it was started with")
	}
	server.ReloadNATS("authorization: {user: a, password: new}")
	check.Eventually(t, "it asks for the new password", func() bool { return opens("new") && !opens("old") })
	if server.PID() != pid {
		t.Error("it was started again")
	}
}
