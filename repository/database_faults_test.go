//go:build faults

//part:databases

package repository_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// TestServerFrozen (SIGSTOP): no connection breaks, nothing is answered.
func TestServerFrozen(t *testing.T) {
	t.Parallel()
	f, server, _ := ownServer(t)
	hasty := f.hasty(t)
	v := f.onSale(t, 10)
	server.Pause()
	check.Eventually(t, "every thread has stopped", func() bool {
		threads := check.Value(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", server.PID())))(t)
		for _, thread := range threads {
			if stat, err := os.ReadFile(thread); err == nil && !strings.Contains(string(stat), ") T ") {
				return false
			}
		}
		return len(threads) > 0
	})
	hasty.unavailable(t, v.ID)
	server.Resume()
	check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
	f.balanced(t, v.ID, 1)
}
