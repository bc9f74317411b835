//go:build faults

//part:packaging

package e2e_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
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

// A release is the same bytes wherever its commit is built, and has the version that the chart and compose name. Its program
// sells in a root that holds nothing else, and so does its image, to which nothing is writable but /data. ROOTS are further
// roots to try it in, of Debian for example.
func TestARelease(t *testing.T) {
	t.Parallel()
	chart := string(check.Value(os.ReadFile("../../../deployments/helm/seckill/Chart.yaml"))(t))
	version := regexp.MustCompile(`(?m)^appVersion: (.+)$`).FindStringSubmatch(chart)[1]
	bash := func(format string, args ...any) string {
		script := fmt.Sprintf(format, args...)
		out, err := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script).CombinedOutput()
		check.Need(t, err == nil, "%s: %v\n%s", script, err, out)
		return string(out)
	}
	made := func() (dir string) {
		dir = filepath.Join(t.TempDir(), "seckill")
		bash("git clone --quiet ../../.. %s && cd %[1]s && git tag --force v%s && make release TARGETS=linux/%s", dir, version, runtime.GOARCH)
		return filepath.Join(dir, "dist")
	}
	dist, again := made(), made()
	sums := check.Value(os.ReadFile(filepath.Join(dist, "SHA256SUMS")))(t)
	check.Equal(t, "the sums of another build", string(check.Value(os.ReadFile(filepath.Join(again, "SHA256SUMS")))(t)), string(sums))
	released := t.TempDir()
	bash("cd %s && sha256sum --check --strict SHA256SUMS && tar --extract --file seckill-*.tar.gz --strip-components=1 --directory %s", dist, released)
	bash("mkdir %s/tmp && chroot %[1]s /seckill demo", released)
	bash(`grep -q '^.TH "SECKILL-SERVE' %s/man/seckill-serve.1 && bash -n %[1]s/completions/seckill.bash`, released)
	said := bash("chroot %s /seckill version", released)
	check.That(t, strings.HasPrefix(said, "seckill v"+version+" "), "it says %s, and the chart names %s", said, version)

	layout, unpacked := t.TempDir(), t.TempDir()
	bash("tar --extract --file %s/seckill-v%s-image.tar --directory %s", dist, version, layout)
	type descriptor struct {
		Digest      string
		Annotations map[string]string
	}
	read := func(path string) (d struct {
		Manifests, Layers []descriptor
		Config            descriptor
	},
	) {
		check.Must(t, json.Unmarshal(check.Value(os.ReadFile(filepath.Join(layout, path)))(t), &d))
		return d
	}
	blob := func(of descriptor) string { return strings.Replace("blobs/"+of.Digest, ":", "/", 1) }
	index := read("index.json").Manifests[0]
	check.Equal(t, "the image's name", index.Annotations["io.containerd.image.name"], "docker.io/library/seckill:"+version)
	manifest := read(blob(read(blob(index)).Manifests[0]))
	var file struct {
		Config struct {
			Env, Entrypoint, Cmd []string
			User                 string
			Labels               map[string]string
			Healthcheck          struct{ Test []string }
		}
	}
	check.Must(t, json.Unmarshal(check.Value(os.ReadFile(filepath.Join(layout, blob(manifest.Config))))(t), &file))
	image := file.Config
	check.That(t, strings.Contains(said, image.Labels["org.opencontainers.image.revision"]), "the program says %s, the image %v", said, image.Labels)
	environ := base()
	for _, variable := range image.Env {
		name, value, _ := strings.Cut(variable, "=")
		environ[name] = value
	}
	for _, root := range append(strings.Fields(os.Getenv("ROOTS")), unpacked) {
		bash("tar --extract --preserve-permissions --file %s --directory %s", filepath.Join(layout, blob(manifest.Layers[0])), root)
		bash("cmp %s/seckill %s/usr/local/bin/seckill", released, root)
		program := filepath.Join(t.TempDir(), "container")
		check.Must(t, os.WriteFile(program, fmt.Appendf(nil, `#!/bin/sh
exec unshare --mount sh -euc 'mount --bind %[1]s %[1]s && mount --bind %[1]s/data %[1]s/data && mount -o remount,bind,ro %[1]s &&
	exec chroot --userspec=%[2]s --groups= %[1]s %[3]s'`, root, image.User, strings.Join(append(image.Entrypoint, image.Cmd...), " ")), 0o700))
		p := prepare(t, program, environ)
		p.serves(t)
		p.buys(t, p.onSale(t, 1).ID, p.user(1))
		health := fmt.Sprintf("chroot --userspec=%s %s %s --url %s", image.User, root, strings.Join(image.Healthcheck.Test[1:], " "), p.URL)
		bash("%s", health)
		p.stops(t)
		bash("! %s", health)
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

// example prepares a program of docs/examples, with more of the environment.
func example(t *testing.T, program []string, environ ...string) *exec.Cmd {
	t.Helper()
	_, err := exec.LookPath(program[0])
	check.Need(t, err == nil, "%s is missing: make deps-examples installs what the examples take", program[0])
	cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
	cmd.Dir, cmd.Env = "../../../docs/examples", append(os.Environ(), environ...)
	return cmd
}

// hardRoad leads to a service. It refuses a buyer's first call and first payment, loses the answer of the second call, and
// tells what came to what. Refusals of the service itself are no part of that.
func hardRoad(t *testing.T, service string) (address string, seen func() string) {
	t.Helper()
	var mu sync.Mutex
	var steps []string
	var refused time.Time
	proxy := httputil.NewSingleHostReverseProxy(check.Value(url.Parse(service))(t))
	id, mine := regexp.MustCompile(`/api/v1/(vouchers|orders)(/[^/?]+)?`), map[int]int{0: 503, 4: 429}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		step, answer := r.Method+" "+id.ReplaceAllString(r.URL.RequestURI(), ""), httptest.NewRecorder()
		if time.Since(refused) < time.Second*9/10 { // real time: a busy machine makes it longer, and a timer may be early
			step = "too early: " + step
		}
		if status := mine[len(steps)]; status != 0 {
			refused = time.Now()
			answer.Header().Set("Retry-After", "1")
			answer.WriteHeader(status)
			steps = append(steps, fmt.Sprint(step, " ", status))
		} else if proxy.ServeHTTP(answer, r); answer.Code != http.StatusTooManyRequests && answer.Code != http.StatusServiceUnavailable {
			steps = slices.Compact(append(steps, fmt.Sprint(step, " ", answer.Code)))
			if len(steps) == 2 {
				panic(http.ErrAbortHandler)
			}
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = answer.Body.WriteTo(w)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(steps, ", ")
	}
}

// A buyer in each language gets one unit on a hard road, pays, and finds the code later, also while the sale is paused.
func TestBuyers(t *testing.T) {
	t.Parallel()
	a := start(t, embeddedSettings(t).with(settings{"SECKILL_ORDER_MODE": "async"}))
	for _, program := range [][]string{
		{"python3", "buyer-python/buyer.py"},
		{"node", "../../bin/examples/buyer-typescript/buyer.js"},
		{"java", "buyer-java/Buyer.java"},
		{"go", "run", "./buyer-go"},
	} {
		t.Run(program[0], func(t *testing.T) {
			t.Parallel()
			voucher := a.onSale(t, 1)
			road, seen := hardRoad(t, a.URL)
			says := func(user string, fails bool) string {
				cmd := example(t, append(program, voucher.ID), "SECKILL="+road, "TOKEN="+a.as(t, user))
				cmd.Stderr = t.Output()
				out, err := cmd.Output()
				check.That(t, fails == (err != nil), "it says %s: %v", out, err)
				return strings.TrimSpace(string(out))
			}
			ann := a.user(1) + program[0]
			page := says(ann, false)
			check.Equal(t, "what it did", seen(), "POST /seckill 503, POST /seckill 202, POST /seckill 409, GET ?wait=10s 200, "+
				"POST /pay 429, POST /pay 202")
			got, err := a.Client.PostForm(page, url.Values{"decision": {"approve"}})
			check.Must(t, err)
			check.Must(t, got.Body.Close())
			paid := a.reaches(t, a.mine(t, voucher.ID, ann)[0], model.OrderPaid)
			check.Equal(t, "what it says later", says(ann, false), paid.Code)
			check.Equal(t, "what it says to another one", says("bob", true), "SOLD_OUT")
			a.patch(t, voucher.ID, map[string]any{"state": "paused"})
			check.Equal(t, "what it says while the sale is paused", says(ann, false), paid.Code)
		})
	}
}

// The receiver sends one mail for a paid order, however often its event comes, and takes no event without a signature.
func TestReceiver(t *testing.T) {
	t.Parallel()
	said, secret := &check.Log{}, settings{"SECKILL_EVENTS_SECRET": eventSecret}
	cmd := example(t, []string{"python3", "webhook-receiver/receiver.py"}, "ADDR=127.0.0.1:0", "EVENTS_DB="+t.TempDir()+"/events.db",
		secret.environ()[0])
	cmd.Stdout, cmd.Stderr = said, t.Output()
	check.Must(t, cmd.Start())
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	check.Patiently(t, "it listens", func() bool { return strings.HasSuffix(said.String(), "\n") })
	_, address, _ := strings.Cut(strings.TrimSpace(said.String()), "listens at ")
	forged, err := http.Post(address, "application/json", strings.NewReader("{}"))
	check.Must(t, err)
	check.Must(t, forged.Body.Close())
	check.Equal(t, "the answer without a signature", forged.StatusCode, http.StatusUnauthorized)

	a := start(t, embeddedSettings(t).with(secret).with(settings{"SECKILL_EVENTS_URLS": address, "SECKILL_EVENTS_PRIVATE": "on"}))
	voucher := a.onSale(t, 2)
	mailed := func(user string) {
		order := a.buys(t, voucher.ID, user)
		got := a.does(t, "POST /admin/orders/"+order.ID+"/paid", a.Admin(t), map[string]any{"reference": user})
		check.Equal(t, "paid elsewhere", got.Status, http.StatusOK)
		mail := "mail to " + user + ": order " + order.ID + " is paid"
		check.Patiently(t, "it sends the mail", func() bool { return strings.Contains(said.String(), mail) })
	}
	mailed(a.user(1))
	a.replays(t, map[string]any{"since": time.Now().Add(-time.Hour)}, http.StatusAccepted)
	check.Patiently(t, "it hears all three again", func() bool { return strings.Count(said.String(), "not twice") >= 3 })
	mailed(a.user(2)) // it works in the order in which it stored
	check.Equal(t, "mails", strings.Count(said.String(), "mail to"), 2)
}

// While Java holds a user's lock, that user hears LOCK_BUSY and others buy; behind its release the user buys.
func TestJavaSharesTheLock(t *testing.T) {
	t.Parallel()
	environ := settings{"SECKILL_REDIS_URL": testserver.SharedRedis(t)}
	a := start(t, embeddedSettings(t).with(environ).with(settings{"SECKILL_LOCK_WAIT": "0s"}))
	voucher, ann, said := a.onSale(t, 2), a.user(1), &check.Log{}
	cmd := example(t, []string{"java", "-cp", "../../bin/examples/java/*", "java-shares-the-lock/SharesTheLock.java", ann},
		environ.environ()...)
	enter := check.Value(cmd.StdinPipe())(t)
	cmd.Stdout, cmd.Stderr = said, t.Output()
	check.Must(t, cmd.Start())
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	check.Patiently(t, "it holds the lock", func() bool { return strings.Contains(said.String(), "holds "+ann) })
	refused(t, a.once(t, "POST /vouchers/"+voucher.ID+"/seckill", a.as(t, ann), nil), model.CodeLockBusy)
	a.buys(t, voucher.ID, a.user(2))
	check.Must(t, enter.Close())
	check.Must(t, cmd.Wait())
	a.buys(t, voucher.ID, ann)
}

// One process leads. Of one that sleeps another takes over and books; what the sleeper then writes is refused.
func TestLockInYourService(t *testing.T) {
	t.Parallel()
	dsn := testserver.Schema(t)
	db := check.Value(sql.Open("mysql", dsn))(t)
	defer db.Close()
	for _, statement := range []string{"CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT, token BIGINT)", "INSERT INTO accounts VALUES (1, 0, 0)"} {
		check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), statement)))
	}
	environ := settings{"SECKILL_REDIS_URL": testserver.SharedRedis(t), "SECKILL_DATABASE_DSN": dsn}.environ()
	program := filepath.Join(t.TempDir(), "service")
	check.Must(t, example(t, []string{"go", "build", "-o", program, "./lock-in-your-service"}).Run())
	type service struct {
		*exec.Cmd

		enter io.WriteCloser
		said  *check.Log
	}
	begins := func() service {
		s := service{example(t, []string{program}, environ...), nil, &check.Log{}}
		s.enter, s.Stdout, s.Stderr = check.Value(s.StdinPipe())(t), s.said, t.Output()
		check.Must(t, s.Start())
		t.Cleanup(func() { _, _ = s.Process.Kill(), s.Wait() })
		return s
	}
	says := func(s service, want string) {
		t.Helper()
		check.Patiently(t, "it says "+want, func() bool { return s.said.String() == want })
	}
	presses := func(s service) { check.Must(t, check.ErrorOf(io.WriteString(s.enter, "\n"))) }
	const leads, booked = "leads\nholds account:1\n", "done: <nil>\nholds account:1\n"
	first := begins()
	says(first, leads)
	second := begins()
	presses(first)
	says(first, leads+booked)
	check.Must(t, first.Process.Signal(syscall.SIGSTOP))
	says(second, leads)
	presses(second)
	says(second, leads+booked)
	presses(first)
	check.Must(t, first.Process.Signal(syscall.SIGCONT))
	check.Patiently(t, "the sleeper is refused", func() bool { return strings.Contains(first.said.String(), "refused: a later holder has written") })
	check.Must(t, second.enter.Close())
	check.Must(t, second.Wait())
	check.Patiently(t, "the first leads again", func() bool { return strings.HasSuffix(first.said.String(), leads) })
	var balance int
	check.Must(t, db.QueryRowContext(t.Context(), "SELECT balance FROM accounts").Scan(&balance))
	check.Equal(t, "what is booked", balance, 2)
}
