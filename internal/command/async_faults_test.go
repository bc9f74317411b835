//go:build faults

//part:queue

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

func reach(t *testing.T, dir, base string) counter {
	t.Helper()
	cfg := check.Value(config.Load(in(dir)))(t)
	authority := check.Value(app.Tokens(t.Context(), cfg))(t)
	return counter{remote.Service{URL: base, Client: client(t), Tokens: authority}}
}

// One variable is enough, a killed server resumes where it was, and one process at a time has the embedded parts.
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
		call(t, inAsync(dir), "", command...).shows(exitError, "inside")
	}
	call(t, inAsync(dir), "", "mode").shows(exitOK, "async")
	if code := first.stop(t, syscall.SIGKILL); code == 0 {
		t.Error("it was not killed")
	}

	second := serve(t, t.TempDir(), "--data-dir", dir, "--order-mode", "async")
	_, moved := second.curls(t)
	s.URL = moved
	order := s.awaited(t, "bob", remote.Decode[model.Order](t, promised).ID)
	check.Equal(t, "the order after the kill", order.Status, model.OrderUnpaid)
	s.persisted(t, "carol", voucher)
	call(t, inAsync(dir), "", "audit", "--url", moved).shows(exitOK, voucher+" 5 3 2 open 3 0 2 ")
	check.Equal(t, "the exit code after SIGTERM", second.stop(t, syscall.SIGTERM), 0)
	switched(t, dir, voucher)
}

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
	call(t, inAsync(dir), "", "deadletters", "list").shows(exitOK, "0 dead letters")
}

// Around a change of the mode: both audits, a refusal while an instance sells, and hints of the wrong mode's instances.
func TestModeCommand(t *testing.T) {
	t.Parallel()
	environ := asyncEnviron(t)
	instance, cfg := started(t, environ...)
	s := counterOf(t, instance, cfg)
	voucher := s.putUp(t, 5)
	s.persisted(t, "alice", voucher)
	s.drained(t, voucher)
	call(t, environ, "", "audit").shows(exitOK, voucher+" 5 4 1 open 4 0 1 0 0s yes")
	call(t, environ, "", "mode", "sync").shows(exitError, "Instances sell")
	halt(instance)
	if got := call(t, environ, "", "mode", "sync"); got.code != 0 || got.stderr != "" ||
		!strings.Contains(got.stdout, "order mode sync") {
		t.Fatalf("mode sync: %+v", got)
	}
	instance, cfg = started(t, environ...)
	s = counterOf(t, instance, cfg)
	status, body := ready(t, s.URL)
	check.That(t, status == http.StatusServiceUnavailable && strings.Contains(body, "seckill mode async"),
		"an instance of the wrong mode: %d %s", status, body)
	check.Equal(t, "it sells in the wrong mode", check.Value(s.Place(t, voucher, "bob"))(t).Status,
		http.StatusServiceUnavailable)
	call(t, environ, "", "audit", "--repair").shows(exitOK, voucher+" 5 4 1 yes", "nothing to repair in sync mode")
	if got := call(t, environ, "", "mode", "async"); got.code != 0 || got.stderr != "" { // the instance waits for it
		t.Fatalf("mode async: %+v", got)
	}
	check.Eventually(t, "it is ready again",
		func() bool { status, _ := ready(t, s.URL); return status == http.StatusOK })
	s.persisted(t, "carol", voucher)
}

// TestAuditRepairsTheStockOfAnEmbeddedServer that is stopped: its next start loads the repaired row.
func TestAuditRepairsTheStockOfAnEmbeddedServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	instance, cfg := started(t, inAsync(dir)...)
	s := counterOf(t, instance, cfg)
	voucher := s.putUp(t, 2)
	s.persisted(t, "alice", voucher)
	repair := []string{"audit", "--repair", "--stock", "--voucher", voucher}
	call(t, inAsync(dir), "", repair...).shows(exitError, "stopped first")
	halt(instance)
	setRow(t, cfg, "remaining = 0", voucher)
	call(t, inAsync(dir), "", repair...).shows(exitOK, "remaining was 0 and is 1 now", voucher+" 2 1 1 yes")
	instance, cfg = started(t, inAsync(dir)...)
	s = counterOf(t, instance, cfg)
	s.persisted(t, "bob", voucher)
	call(t, inAsync(dir), "", "audit", "--url", instance.BaseURL()).shows(exitOK)
}
