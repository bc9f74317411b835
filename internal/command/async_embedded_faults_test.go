//go:build faults

//part:kills

package command

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"seckill/config"
	"seckill/internal/app"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// reach is a client of an embedded server in a process of its own.
func reach(t *testing.T, dir, base string) counter {
	t.Helper()
	cfg := check.Value(config.Load(in(dir)))(t)
	authority := check.Value(app.Tokens(t.Context(), cfg))(t)
	return counter{remote.Service{URL: base, Client: client(t), Tokens: authority}}
}

// One variable is enough, a server that is killed in the middle goes on where it
// was, and what is embedded belongs to one process at a time.
func TestEmbeddedAsync(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	first := serve(t, t.TempDir(), "--data-dir", dir, "--order-mode", "async")
	lines, base := first.curls(t)
	if got := pasted(t, lines...); strings.Count(got, `"status":"`) != 2 || !strings.Contains(got, `"user_id":"1"`) {
		t.Errorf("pasted: %s", got)
	}
	if !strings.Contains(first.stdout.String(), filepath.Join(dir, "nats")) {
		t.Error("the welcome does not say where orders wait")
	}
	s := reach(t, dir, base)
	voucher := s.putUp(t, 5)
	promised := s.buys(t, "bob", voucher)
	check.Equal(t, "bob buys", promised.Status, http.StatusAccepted)
	for _, command := range [][]string{{"mode", "sync"}, {"deadletters", "list"}, {"audit", "--repair"}} {
		if got := call(t, inAsync(dir), "", command...); got.code != exitError || !strings.Contains(got.stderr, "inside") {
			t.Errorf("%q beside the server: %+v", command, got)
		}
	}
	if got := call(t, inAsync(dir), "", "mode"); got.code != 0 || got.stdout != "async\n" {
		t.Errorf("mode beside the server: %+v", got)
	}
	if code := first.stop(t, syscall.SIGKILL); code == 0 {
		t.Error("it was not killed")
	}

	second := serve(t, t.TempDir(), "--data-dir", dir, "--order-mode", "async")
	_, moved := second.curls(t)
	s.URL = moved
	order := s.awaited(t, "bob", remote.Decode[model.Order](t, promised).ID)
	check.Equal(t, "the order after the kill", order.Status, model.OrderUnpaid)
	s.persisted(t, "carol", voucher)
	got := call(t, inAsync(dir), "", "audit", "--url", moved)
	if got.code != 0 || !strings.Contains(words(got.stdout), voucher+" 5 3 2 open 3 0 2 ") {
		t.Errorf("audit: %+v", got)
	}
	check.Equal(t, "the exit code after SIGTERM", second.stop(t, syscall.SIGTERM), 0)
	switched(t, dir, voucher)
}

// switched switches an embedded database whose server is stopped, and back.
func switched(t *testing.T, dir, voucher string) {
	t.Helper()
	if got := call(t, inAsync(dir), "", "mode", "sync"); got.code != 0 || got.stderr != "" {
		t.Fatalf("mode sync: %+v", got)
	}
	// A server of the other mode says what is to be done, and sells nothing.
	stray := serve(t, t.TempDir(), "--data-dir", dir, "--order-mode", "async")
	_, base := stray.curls(t)
	if status, body := ready(t, base); status != 503 || !strings.Contains(stray.stdout.String(), "NONE FOR NOW") {
		t.Errorf("the wrong mode: %d %s\n%s", status, body, stray.stdout)
	}
	got := check.Value(reach(t, dir, base).Place(t, voucher, "dora"))(t)
	check.Equal(t, "the wrong mode sells", got.Status, http.StatusServiceUnavailable)
	stray.stop(t, syscall.SIGTERM)
	if got := call(t, inAsync(dir), "", "mode", "async"); got.code != 0 || got.stderr != "" {
		t.Fatalf("mode async: %+v", got)
	}
	if got := call(t, inAsync(dir), "", "deadletters", "list"); got.code != 0 || got.stdout != "0 dead letters\n" {
		t.Errorf("deadletters: %+v", got)
	}
}
