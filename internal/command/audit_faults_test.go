//go:build faults

//part:stores

package command

import (
	"strings"
	"testing"
)

// TestAuditRepairsTheStockOfAnEmbeddedServer that is stopped: its next start
// loads the repaired row.
func TestAuditRepairsTheStockOfAnEmbeddedServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	instance, cfg := started(t, inAsync(dir)...)
	s := counterOf(t, instance, cfg)
	voucher := s.putUp(t, 2)
	s.persisted(t, "alice", voucher)
	repair := []string{"audit", "--repair", "--stock", "--voucher", voucher}
	if got := call(t, inAsync(dir), "", repair...); got.code != exitError || !strings.Contains(got.stderr, "stopped first") {
		t.Errorf("beside the server: %+v", got)
	}
	halt(instance)
	setRow(t, cfg, "remaining = 0", voucher)
	got := call(t, inAsync(dir), "", repair...)
	if got.code != 0 || !strings.Contains(got.stdout, "remaining was 0 and is 1 now") || !strings.Contains(words(got.stdout), voucher+" 2 1 1 yes") {
		t.Errorf("of a stopped server: %+v", got)
	}
	instance, cfg = started(t, inAsync(dir)...)
	s = counterOf(t, instance, cfg)
	s.persisted(t, "bob", voucher)
	if got := call(t, inAsync(dir), "", "audit", "--url", instance.BaseURL()); got.code != 0 {
		t.Errorf("%+v", got)
	}
}
