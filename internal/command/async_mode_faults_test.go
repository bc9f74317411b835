//go:build faults

//part:queue

package command

import (
	"net/http"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// The commands around a change of the mode: the audit of each side, the refusal beside an instance that sells, and that
// instances of the wrong mode say what to do.
func TestModeCommand(t *testing.T) {
	t.Parallel()
	environ := asyncEnviron(t)
	instance, cfg := started(t, environ...)
	s := counterOf(t, instance, cfg)
	voucher := s.putUp(t, 5)
	s.persisted(t, "alice", voucher)
	s.drained(t, voucher)
	got := call(t, environ, "", "audit")
	if got.code != 0 || !strings.Contains(words(got.stdout), voucher+" 5 4 1 open 4 0 1 0 0s yes") {
		t.Errorf("audit: %+v", got)
	}
	if got := call(t, environ, "", "mode", "sync"); got.code != exitError || !strings.Contains(got.stderr, "Instances sell") {
		t.Errorf("mode sync beside an instance: %+v", got)
	}
	halt(instance)
	if got := call(t, environ, "", "mode", "sync"); got.code != 0 || got.stderr != "" || !strings.Contains(got.stdout, "order mode sync") {
		t.Fatalf("mode sync: %+v", got)
	}
	instance, cfg = started(t, environ...)
	s = counterOf(t, instance, cfg)
	status, body := ready(t, s.URL)
	check.That(t, status == http.StatusServiceUnavailable && strings.Contains(body, "seckill mode async"), "an instance of the wrong mode: %d %s", status, body)
	check.Equal(t, "it sells in the wrong mode", check.Value(s.Place(t, voucher, "bob"))(t).Status, http.StatusServiceUnavailable)
	got = call(t, environ, "", "audit", "--repair")
	if got.code != 0 || !strings.Contains(words(got.stdout), voucher+" 5 4 1 yes") || !strings.Contains(got.stderr, "nothing to repair in sync mode") {
		t.Errorf("audit in sync: %+v", got)
	}
	if got := call(t, environ, "", "mode", "async"); got.code != 0 || got.stderr != "" { // the instance waits for it
		t.Fatalf("mode async: %+v", got)
	}
	check.Eventually(t, "it is ready again", func() bool { status, _ := ready(t, s.URL); return status == http.StatusOK })
	s.persisted(t, "carol", voucher)
}
