package bench

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"seckill/internal/testserver"
)

// cpuOf is what a process has computed since it was started, in all its threads, those included that have ended.
// The kernel counts in ticks of 10 ms.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat := string(testserver.Value(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t))
	// Behind the name, which is in parentheses: 11 fields, utime and stime.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const tick = time.Second / 100 // on every Linux
	user := testserver.Value(strconv.ParseInt(fields[11], 10, 64))(t)
	system := testserver.Value(strconv.ParseInt(fields[12], 10, 64))(t)
	return time.Duration(user+system) * tick
}

// ownCPU is the same of this process, which sends the open load.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	testserver.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// forgetPeak lets the kernel count the most memory that a process has had from now on.
func forgetPeak(t *testing.T, pid int) {
	t.Helper()
	testserver.Must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o600))
}

// peak is the most memory that a process has had, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	status := testserver.Value(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	line := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if line == nil {
		t.Fatalf("no VmHWM in %s", status)
	}
	return testserver.Value(strconv.ParseInt(string(line[1]), 10, 64))(t) << 10
}
