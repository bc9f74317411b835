package bench

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"seckill/internal/workshop/check"
)

// report puts together what was measured.
func (h *harness) report(from *results) Report {
	h.Helper()
	return Report{
		At: time.Now().UTC().Truncate(time.Second), Commit: commit(), Rounds: h.rounds, Seconds: h.seconds,
		Machine: h.machine(), Rows: from.rows(), Errors: h.failures,
	}
}

// of are the rows of one build, without those of the yardstick, and as if they were of this checkout's.
func (r Report) of(b string) []Row {
	var rows []Row
	for _, row := range r.Rows {
		if row.Build == b && row.Case != yardstickName {
			row.Build = ""
			rows = append(rows, row)
		}
	}
	return rows
}

// commit is the checkout's; "+" says that files differ from it.
func commit() string {
	said, err := exec.Command("git", "describe", "--always", "--dirty=+", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(said))
}

func (h *harness) machine() Machine {
	h.Helper()
	m := Machine{Cores: runtime.NumCPU(), Versions: map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go"), "NATS": h.natsVersion}}
	m.CPU = strings.TrimSpace(after("/proc/cpuinfo", "model name"))
	kilobytes, _, _ := strings.Cut(strings.TrimSpace(after("/proc/meminfo", "MemTotal")), " ")
	if n, err := strconv.Atoi(kilobytes); err == nil {
		m.Memory = (n + 1<<19) >> 20
	}
	var version string
	check.Must(h, h.db.QueryRowContext(h.Context(), "SELECT VERSION()").Scan(&version))
	m.Versions["MariaDB"], _, _ = strings.Cut(version, "-")
	m.Versions["Redis"] = colonFields(check.Value(h.memory.Info(h.Context(), "server").Result())(h))["redis_version"]
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Versions["Linux"] = strings.TrimSpace(string(release))
	}
	said, _ := exec.CommandContext(h.Context(), "wrk", "-v").CombinedOutput() // its exit code is 1
	if words := strings.Fields(string(said)); len(words) > 1 {
		m.Versions["wrk"] = strings.TrimPrefix(words[1], "debian/")
	}
	return m
}

// after is what a file says behind "name:", the first time.
func after(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return value
		}
	}
	return ""
}

// root is the repository's, seen from this package's directory.
const root = "../../.."

// record writes the JSON where it was asked for, and as the newest record of its kind.
func (h *harness) record(report Report, kind Kind) {
	h.Helper()
	if h.out != "" {
		check.Must(h, report.Write(h.out))
	}
	switch {
	case !h.keep:
	case len(h.builds) > 1:
		h.Error("a record is of one build: KEEP does not go with BINARY")
	case h.Failed():
		h.Error("a run that failed is not kept")
	default:
		check.Must(h, report.Keep(root, kind))
	}
}
