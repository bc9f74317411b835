//go:build faults

//part:packaging

package e2e_test

import (
	"database/sql"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
)

// The example consumer gets an order's events in order. After a kill it resumes, and a repeated event works once.
func TestTheExampleConsumer(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "consumer")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"seckill/deployments/consumer").CombinedOutput()
	check.Need(t, err == nil, "%v\n%s", err, out)
	url, stream := testserver.SharedNATS(t), newStream()
	a := start(t, onServers(t).with(settings{"SECKILL_EVENTS": stream, "SECKILL_NATS_URL": url}))
	voucher := a.onSale(t, 1)
	said := &check.Log{}
	run := func() (cmd *exec.Cmd) {
		cmd = exec.CommandContext(t.Context(), program, "-url", url, "-stream", stream, "-name", "mail", "-filter",
			"seckill.*.events.order.>")
		cmd.Stdout, cmd.Stderr = said, said
		check.Must(t, cmd.Start())
		return cmd
	}
	hears := func(want ...string) {
		t.Helper()
		check.Patiently(t, "it has heard enough",
			func() bool { return strings.Count(said.String(), "\n") >= len(want) })
		var lines []string
		for line := range strings.Lines(said.String()) {
			fields := strings.Fields(line)
			lines = append(lines, strings.Join(fields[:min(2, len(fields))], " "))
		}
		same(t, "it has heard", lines, want)
	}
	conn := check.Value(nats.Connect(url))(t)
	defer conn.Close()
	js := check.Value(jetstream.New(conn))(t)
	source := check.Value(js.Stream(t.Context(), stream))(t)
	acknowledged := func(count uint64) {
		t.Helper()
		check.Patiently(t, "the server knows", func() bool {
			consumer := check.Value(source.Consumer(t.Context(), "mail"))(t)
			return consumer.CachedInfo().AckFloor.Consumer >= count
		})
	}

	consumer := run()
	order := a.buys(t, voucher.ID, a.user(1))
	hears("order.unpaid " + order.ID)
	acknowledged(1)
	check.Must(t, consumer.Process.Kill())
	_ = consumer.Wait() // it was killed
	check.Equal(t, "cancel", a.asks(t, order, http.MethodPost, "/cancel").Status, http.StatusOK)
	again := a.buys(t, voucher.ID, a.user(1))
	consumer = run()
	all := []string{"order.unpaid " + order.ID, "order.canceled " + order.ID, "order.unpaid " + again.ID}
	hears(all...)

	// The same event in another message, as after the server's window of de-duplication.
	last := check.Value(source.GetLastMsgForSubject(t.Context(), "seckill.*.events.order.unpaid"))(t)
	check.Value(js.PublishMsg(t.Context(), &nats.Msg{Subject: last.Subject, Data: last.Data}))(t)
	acknowledged(4)
	hears(all...)
	check.Must(t, consumer.Process.Signal(syscall.SIGTERM))
	check.Must(t, consumer.Wait())
}

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
	db := check.Value(sql.Open("mysql", s["SECKILL_DATABASE_DSN"]))(t)
	defer db.Close()
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
