package testserver

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

// CPU is what a process has computed since it was started, in all its threads, those included that have ended.
// The kernel counts in ticks of 10 ms.
func CPU(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat := string(check.Value(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t))
	// Behind the name, which is in parentheses: 11 fields, utime and stime.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const tick = time.Second / 100 // on every Linux
	user := check.Value(strconv.ParseInt(fields[11], 10, 64))(t)
	system := check.Value(strconv.ParseInt(fields[12], 10, 64))(t)
	return time.Duration(user+system) * tick
}

// PeakMemory is the most memory that a process has had since it was started, or since ForgetPeak, in bytes.
func PeakMemory(t testing.TB, pid int) int64 {
	t.Helper()
	status := check.Value(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	line := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if line == nil {
		t.Fatalf("no VmHWM in %s", status)
	}
	return check.Value(strconv.ParseInt(string(line[1]), 10, 64))(t) << 10
}

// ForgetPeak lets the kernel count PeakMemory of a process from now on.
func ForgetPeak(t testing.TB, pid int) {
	t.Helper()
	check.Must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o600))
}
