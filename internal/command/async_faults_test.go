//go:build faults

//part:queue

package command

import (
	"net/http"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

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
	for _, command := range [][]string{{"mode", "sync"}, {"deadletters", "list"}, {"audit", "--repair"}} {
		call(t, inAsync(dir), "", command...).shows(exitError, "inside")
	}
	halt(instance)
	setRow(t, cfg, "remaining = 0", voucher)
	call(t, inAsync(dir), "", repair...).shows(exitOK, "remaining was 0 and is 1 now", voucher+" 2 1 1 yes")
	instance, cfg = started(t, inAsync(dir)...)
	s = counterOf(t, instance, cfg)
	s.persisted(t, "bob", voucher)
	call(t, inAsync(dir), "", "audit", "--url", instance.BaseURL()).shows(exitOK)
}
