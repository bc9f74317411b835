//go:build faults

//part:packaging

package e2e_test

import (
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
)

// roadOrders, one after the other, tell blocks on their road from those that run now and then anyway.
const roadOrders = 100

// leaf is how many blocks of a file an order runs at least where a reader opens it: of fewer the names say all.
const leaf = 8

// The files that orders pass, from the handler to the row, are those that the page of the room names, and not too many.
func TestTheRoadOfAnOrder(t *testing.T) {
	t.Parallel()
	page := string(check.Value(os.ReadFile("../../../service/sale/README.md"))(t))
	// The program counts how often each block runs.
	program := testserver.Built(t, "-cover", "-covermode=atomic", "-coverpkg=seckill/...")
	for _, tt := range []struct {
		heading string
		most    int
		open    func(*testing.T) settings
	}{
		{"## A synchronous order", 12, onServers},
		{"## An asynchronous order", 22, asyncOnServers},
	} {
		t.Run(tt.heading, func(t *testing.T) {
			t.Parallel()
			listed := filesUnder(t, page, tt.heading)
			check.That(t, len(listed) <= tt.most, "%d files, want %d at the most", len(listed), tt.most)
			with, without := timesRun(t, program, tt.open(t), true), timesRun(t, program, tt.open(t), false)
			passed := map[string]int{} // blocks, by file
			for block, times := range with {
				file, _, _ := strings.Cut(block, ":")
				if times-without[block] > roadOrders*9/10 && ofARoom.MatchString(file) {
					passed[file]++
				}
			}
			maps.DeleteFunc(passed, func(_ string, blocks int) bool { return blocks < leaf })
			slices.Sort(listed)
			check.Equal(t, "files on the road", strings.Join(slices.Sorted(maps.Keys(passed)), "\n"),
				strings.Join(listed, "\n"))
		})
	}
}

// A release is the same bytes wherever its commit is built, and its program sells in a root that holds nothing else.
func TestARelease(t *testing.T) {
	t.Parallel()
	made := func() (dir string) {
		dir = filepath.Join(t.TempDir(), "seckill")
		for _, command := range [][]string{
			{"git", "clone", "--quiet", "../../..", dir},
			{"make", "-C", dir, "release", "TARGETS=linux/" + runtime.GOARCH},
		} {
			out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
			check.Need(t, err == nil, "%s: %v\n%s", command, err, out)
		}
		return filepath.Join(dir, "dist")
	}
	dist, again := made(), made()
	sums := check.Value(os.ReadFile(filepath.Join(dist, "SHA256SUMS")))(t)
	check.Equal(t, "the sums of another build", string(check.Value(os.ReadFile(filepath.Join(again, "SHA256SUMS")))(t)), string(sums))
	root := t.TempDir()
	check.Must(t, os.Mkdir(filepath.Join(root, "tmp"), 0o700))
	for _, script := range []string{
		"cd " + dist + " && sha256sum --check --strict SHA256SUMS && tar --extract --file seckill-*.tar.gz --strip-components=1 --directory " + root,
		"chroot " + root + " /seckill version && chroot " + root + " /seckill demo",
		"grep -q '^.TH \"SECKILL-SERVE' " + root + "/man/seckill-serve.1 && bash -n " + root + "/completions/seckill.bash",
	} {
		out, err := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script).CombinedOutput()
		check.That(t, err == nil, "%s: %v\n%s", script, err, out)
	}
}

// ofARoom are the files that the list is about; the page says what it leaves out. (service/guard looks by the clock.)
var ofARoom = regexp.MustCompile(`^(handler|service/(sale|persist|backlog|repair)|queue|internal/lane)/|^(service|repository(/hotcopy)?)/\w+\.go$`)

// filesUnder lists the Go files to which the table under a heading of the page leads, each once.
func filesUnder(t *testing.T, page, heading string) (files []string) {
	_, section, found := strings.Cut(page, heading+"\n")
	check.That(t, found, "there is no heading %q", heading)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, link := range regexp.MustCompile(`(?m)^\| \d+ .*?\]\(([^)]+\.go)\)`).FindAllStringSubmatch(section, -1) {
		file := filepath.ToSlash(filepath.Join("service/sale", link[1]))
		check.That(t, !slices.Contains(files, file), "%s is visited twice", file)
		files = append(files, file)
	}
	return files
}

// timesRun tells how often each block of the program runs between its start and its stop, with or without orders.
func timesRun(t *testing.T, program string, s settings, orders bool) map[string]int {
	dir := t.TempDir()
	p := prepare(t, program, s.with(settings{"GOCOVERDIR": dir, "SECKILL_DRAIN_GRACE": "0s"}))
	p.serves(t)
	voucher := p.onSale(t, 2*roadOrders)
	db := behind(t, s)
	for n := range roadOrders {
		if !orders { // what every request and every transaction passes
			got := p.Call(t, http.MethodPatch, "/admin/vouchers/"+voucher.ID, p.Admin(t),
				map[string]any{"title": strconv.Itoa(n)})
			check.Equal(t, "the status of a change", got.Status, http.StatusOK)
		} else {
			remote.Insist(t, p.user(n), func(int) (api.Answer, error) { return p.Place(t, voucher.ID, p.user(n)) })
			check.Patiently(t, "the order has a row", func() (there bool) {
				row := db.QueryRowContext(t.Context(), "SELECT COUNT(*) > ? FROM orders WHERE voucher_id = ?", n,
					voucher.ID)
				check.Must(t, row.Scan(&there))
				return there
			})
		}
	}
	p.stops(t)
	profile := filepath.Join(dir, "profile")
	out, err := exec.CommandContext(t.Context(), "go", "tool", "covdata", "textfmt", "-i="+dir,
		"-o="+profile).CombinedOutput()
	check.That(t, err == nil, "%v: %s", err, out)
	times := map[string]int{}
	for line := range strings.Lines(string(check.Value(os.ReadFile(profile))(t))) {
		if fields := strings.Fields(line); len(fields) == 3 {
			times[strings.TrimPrefix(fields[0], "seckill/")] += check.Value(strconv.Atoi(fields[2]))(t)
		}
	}
	return times
}
