package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
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
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"seckill/internal/version"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestMain(m *testing.M) {
	// More at once than there are processors: these tests wait for servers and disks. What is said with -parallel counts.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	testserver.Main(m)
}

type called struct {
	code           int
	stdout, stderr string
	report         func(format string, args ...any)
}

// shows fails the test unless the command ended with a code, and said texts in whatever columns.
func (c called) shows(code int, texts ...string) {
	said := words(c.stdout) + "\n" + words(c.stderr)
	for _, text := range texts {
		if !strings.Contains(said, words(text)) {
			c.report("it does not say %q", text)
		}
	}
	if c.code != code {
		c.report("exit %d, want %d", c.code, code)
	}
}

func call(t *testing.T, environ []string, stdin string, args ...string) called {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), Process{
		Args: args, Environ: environ, Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr,
	})
	_, file, line, _ := runtime.Caller(1)
	return called{code, stdout.String(), stderr.String(), func(format string, also ...any) {
		t.Helper()
		t.Errorf("%s:%d: %q: %s\n%s%s", filepath.Base(file), line, args, fmt.Sprintf(format, also...), &stdout, &stderr)
	}}
}

func in(dir string) []string { return []string{"SECKILL_DATA_DIR=" + dir} }

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		environ []string
		args    string
		code    int
		stderr  string
	}{
		"unknown command":      {nil, "sel", 2, `no command "sel"`},
		"a typo":               {nil, "serv", 2, "did you mean serve?"},
		"unknown flag":         {nil, "--bogus", 2, "unknown flag: --bogus"},
		"unknown flag below":   {nil, "token --bogus", 2, "'seckill token --help'"},
		"argument":             {nil, "config all", 2, `no argument "all"`},
		"unknown subcommand":   {nil, "migrate up", 2, `no command "up"`},
		"admin alone":          {nil, "admin", 2, "create"},
		"flag without value":   {nil, "serve --http-addr", 2, "needs an argument"},
		"wrong type":           {nil, "token --users many", 2, "many"},
		"no users":             {nil, "token", 2, "--users"},
		"wrong role":           {nil, "token --users 1 --role boss", 2, "boss"},
		"no lifetime":          {nil, "token --users 1 --ttl 0s", 2, "--ttl"},
		"too long a lifetime":  {nil, "token --users 1 --ttl 9601h", 2, "--ttl"},
		"of administrators":    {nil, "token --users 1 --role admin --ttl 169h", 2, "168h0m0s"},
		"too many users":       {nil, "token --users 2 --first 9223372036854775807", 2, "--first"},
		"no username":          {nil, "admin create", 2, "--username"},
		"nobody to disable":    {nil, "admin disable", 2, "--username"},
		"no embedded accounts": {[]string{"SECKILL_DATA_DIR=/nowhere"}, "admin list", 1, "no embedded database"},
		"no buyers":            {nil, "demo --buyers 0", 2, "--buyers"},
		"negative stock":       {nil, "demo --stock -1", 2, "--stock"},
		"a bad order mode":     {[]string{"SECKILL_ORDER_MODE=maybe"}, "demo", exitError, "SECKILL_ORDER_MODE"},
		"token without a url":  {nil, "audit --token x", 2, "--url"},
		"url that is none":     {nil, "audit --token x --url localhost", 2, "--url"},
		"no such mode":         {nil, "mode later", 2, "later"},
		"two modes":            {nil, "mode sync async", 2, "sync, async or nothing"},
		"deadletters alone":    {nil, "deadletters", 2, "list, show, replay or drop"},
		"no letter":            {nil, "deadletters show", 2, "one sequence number"},
		"letter that is none":  {nil, "deadletters replay first", 2, `"first"`},
		"letter and all":       {nil, "deadletters replay 1 --all", 2, "not both"},
		"no time to replay":    {nil, "events replay", 2, "--since"},
		"nobody to replay for": {[]string{"SECKILL_DATA_DIR=/nowhere"}, "events replay --since 2026-11-29T23:00:00Z", 1, "no embedded database"},
		"no embedded mode":     {[]string{"SECKILL_DATA_DIR=/nowhere"}, "mode", 1, "no embedded database"},
		"no embedded letters":  {[]string{"SECKILL_DATA_DIR=/nowhere"}, "deadletters list", 1, "no embedded queue"},
		"worker of nothing":    {[]string{"SECKILL_ORDER_MODE=async"}, "serve --role worker", 1, "SECKILL_NATS_URL is required for the role worker"},
		"bad setting":          {[]string{"SECKILL_ROLE=boss"}, "config", 1, "SECKILL_ROLE"},
		"bad flag of setting":  {nil, "serve --lock-wait soon", 1, "SECKILL_LOCK_WAIT"},
		"no secret for tokens": {[]string{"SECKILL_DATABASE_DSN=root@tcp(127.0.0.1:1)/x"}, "token --users 1", 1, "SECKILL_JWT_SECRET"},
		"every problem": {
			[]string{
				"SECKILL_ORDER_MODE=maybe", "SECKILL_LOCK_WAIT=soon",
				"SECKILL_DATABASE_DSN=root@tcp(127.0.0.1:1)/x",
			},
			"serve", 1,
			"SECKILL_JWT_SECRET is required with a real database, for example from openssl rand -base64 32\n" +
				"  SECKILL_LOCK_WAIT \"soon\" is not a duration such as 250ms, 30s or 15m\n" +
				"  SECKILL_ORDER_MODE \"maybe\" is not sync or async\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := call(t, test.environ, "", strings.Fields(test.args)...)
			if got.code != test.code || !strings.Contains(got.stderr, test.stderr) || got.stdout != "" {
				t.Errorf("exit %d, stderr %q, stdout %q; want exit %d and stderr with %q",
					got.code, got.stderr, got.stdout, test.code, test.stderr)
			}
			if usage := strings.Contains(got.stderr, "--help'"); usage != (test.code == exitUsage) {
				t.Errorf("whether it points to --help: %v, at exit code %d", usage, test.code)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	got := call(t, nil, "", "version")
	want := "seckill " + version.Read().String() + "\n"
	if got.code != exitOK || got.stdout != want || !strings.Contains(want, runtime.Version()) || got.stderr != "" {
		t.Errorf("exit %d, stdout %q, stderr %q; want %q", got.code, got.stdout, got.stderr, want)
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	var commands [][]string
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		commands = append(commands, path)
		check.That(t, cmd.Short != "", "%q says nothing of itself", path)
		for _, child := range cmd.Commands() {
			walk(child, append(slices.Clone(path), child.Name()))
		}
	}
	walk(newRoot(Process{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}), nil)
	check.Need(t, len(commands) >= 10, "only %d commands: %q", len(commands), commands)
	for _, command := range commands {
		got := call(t, nil, "", append(slices.Clone(command), "--help")...)
		check.That(t, got.code == 0 && got.stderr == "" && strings.Contains(got.stdout, "Usage:\n  seckill"),
			"%q --help: exit %d, stderr %q, stdout %q", command, got.code, got.stderr, got.stdout)
	}
}

func TestConfigShowsSettingsAndNoSecret(t *testing.T) {
	t.Parallel()
	got := call(t, []string{
		"SECKILL_DATABASE_DSN=root:hunter2@tcp(127.0.0.1:3306)/shop",
		"SECKILL_JWT_SECRET=hunter2hunter2hunter2hunter2hunter2",
		"SECKILL_CURRENCY=EUR",
	}, "", "config", "--lock-wait", "2s")
	check.Need(t, got.code == 0 && got.stderr == "", "exit %d, %s", got.code, got.stderr)
	rows := map[string]string{}
	for line := range strings.Lines(got.stdout) {
		words := strings.Fields(line)
		rows[words[0]] = strings.Join(words[1:3], " ")
		check.That(t, len(words) >= 5, "a line without unit and meaning: %s", line)
	}
	for variable, want := range map[string]string{
		"SECKILL_DATABASE_DSN": "root:***@tcp(127.0.0.1:3306)/shop env",
		"SECKILL_JWT_SECRET":   "1=*** env",
		"SECKILL_CURRENCY":     "EUR env",
		"SECKILL_LOCK_WAIT":    "2s flag",
		"SECKILL_LOCK_LEASE":   "30s default",
	} {
		check.Equal(t, "what is shown of "+variable, rows[variable], want)
	}
	check.That(t, !strings.Contains(got.stdout, "hunter2"), "a secret is shown")
	table := call(t, nil, "", "config", "--markdown")
	check.That(t, table.code == 0 && strings.Contains(table.stdout, "| `SECKILL_HTTP_ADDR` | `:8080` |"),
		"config --markdown: %+v", table)
}

func TestInterruptedBeforeItStarts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr bytes.Buffer
	code := Run(ctx, Process{
		Args: []string{"demo"}, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &stderr,
	})
	if code != exitError || stderr.Len() == 0 {
		t.Errorf("exit %d, stderr %q", code, stderr.String())
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"plain": errors.New("plain"),
		"create it: Names are longer. Passwords too.": fmt.Errorf("create it: %w", &model.Error{
			Code: model.CodeValidation, Detail: "The request is not valid.",
			Fields: []model.FieldError{{Message: "Names are longer."}, {Message: "Passwords too."}},
		}),
		"audit v: There is no such voucher.":     fmt.Errorf("audit v: %w", model.NotFound("voucher")),
		"It is away. (dial tcp: no route)":       model.Unavailable("It is away.", errors.New("dial tcp: no route")),
		"open: It is away. (closed)\nand closed": errors.Join(fmt.Errorf("open: %w", model.Unavailable("It is away.", errors.New("closed"))), errors.New("and closed")),
	} {
		check.Equal(t, "the explanation", explain(err), want)
	}
}

// shownCommand is a call of the program in a page: first in a line or a piece of code, in $(…), or in a container.
var shownCommand = regexp.MustCompile("(?m)(?:^|`|\\$\\(|-- |exec (?:-\\w+ )?[\\w-]+ )(?:[A-Z_]+=\\S+ )*(?:go run \\.|seckill)((?: +(?:\\[?-{0,2}[\\w-]+|SEQ)(?:(?:\\\\?\\||=)[\\w.:/-]+)*\\]*)+)")

// shownCommands are the calls in a page, with one call for each alternative.
func shownCommands(page string) [][]string {
	var calls [][]string
	for _, match := range shownCommand.FindAllStringSubmatch(page, -1) {
		words := strings.Fields(strings.NewReplacer(`\|`, "|", "[", "", "]", "").Replace(match[1]))
		alternatives := [][]string{nil}
		for _, word := range words {
			var longer [][]string
			for choice := range strings.SplitSeq(word, "|") {
				for _, call := range alternatives {
					longer = append(longer, append(slices.Clone(call), choice))
				}
			}
			alternatives = longer
		}
		calls = append(calls, alternatives...)
	}
	return calls
}

// parses checks a call without running it.
func parses(call []string) error {
	root := newRoot(Process{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard})
	cmd, rest, err := root.Find(call)
	if err != nil {
		return err
	}
	for i, word := range rest {
		if word == "SEQ" {
			rest[i] = "1"
		}
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if args := cmd.Flags().Args(); len(args) > 0 {
		return cmd.ValidateArgs(args)
	}
	return nil
}

func TestPagesShowCommandsThatAreThere(t *testing.T) {
	t.Parallel()
	root := check.Value(filepath.Abs("../.."))(t)
	calls := map[string]int{}
	check.Must(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin" ||
			entry.Name() == "node_modules") {
			return cmp.Or(err, fs.SkipDir)
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		for _, call := range shownCommands(string(check.Value(os.ReadFile(name))(t))) {
			calls[call[0]]++
			if err := parses(call); err != nil {
				t.Errorf("%s shows seckill %s: %v", strings.TrimPrefix(name, root), strings.Join(call, " "), err)
			}
		}
		return nil
	}))
	for _, command := range newRoot(Process{}).Commands() {
		if !command.Hidden && calls[command.Name()] == 0 && command.Name() != "help" {
			t.Errorf("no page shows seckill %s", command.Name())
		}
	}
}

func TestWrongCommandsOfPagesAreFound(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]int{
		"`seckill token --users 1`, `seckill mode [sync\\|async]`, `seckill deadletters show SEQ`": 0,
		"A seckill sells, and `seckill` serves":                                                    0,
		"X=$(go run . token --user 1)":                                                             1,
		"A=b go run . serv":                                                                        1,
		"`seckill admin create\\|remove`":                                                          1,
		"docker compose exec seckill-1 seckill mod":                                                1,
		"`seckill mode both`":                                                                      1,
	} {
		wrong := 0
		for _, call := range shownCommands(page) {
			if parses(call) != nil {
				wrong++
			}
		}
		check.Equal(t, "wrong calls in "+page, wrong, want)
	}
}

// A draw is checked from what the server publishes, and one that was tampered with afterwards does not hold.
func TestDrawVerify(t *testing.T) {
	t.Parallel()
	instance, cfg := started(t)
	s := counterOf(t, instance, cfg)
	voucher := s.Create(t, map[string]any{"stock": 2, "allocation": "draw", "beacon": "the lottery"}).ID
	verify := func(more ...string) called {
		return call(t, nil, "", append([]string{"draw", "verify", "--url", instance.BaseURL(), "--voucher", voucher},
			more...)...)
	}
	proof := func() model.Draw {
		return remote.Decode[model.Draw](t, s.Insist(t, http.MethodGet, "/vouchers/"+voucher+"/draw", "", nil))
	}
	var leaf string
	for n := range 4 {
		got := s.buys(t, fmt.Sprint("user-", n), voucher)
		check.Equal(t, "entered", got.Status, http.StatusAccepted)
		leaf = remote.Decode[model.Entry](t, got).Leaf
	}
	commitment := proof().Commitment
	verify().shows(exitError, "not drawn yet")
	begin, end := time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	got := s.Insist(t, http.MethodPatch, "/admin/vouchers/"+voucher, s.Admin(t),
		map[string]any{"begin_at": begin, "end_at": end})
	check.Equal(t, "the sale ends", got.Status, http.StatusOK)
	check.Patiently(t, "it waits", func() bool { return proof().Root != "" })
	verify().shows(exitError, "not drawn yet")
	got = s.Insist(t, http.MethodPost, "/admin/vouchers/"+voucher+"/beacon", s.Admin(t), map[string]string{"value": "7 é"})
	check.Equal(t, "its value", got.Status, http.StatusOK)
	check.Patiently(t, "it is drawn", func() bool { return proof().DrawnAt != nil })
	verify("--commitment", commitment, "--leaf", leaf, "--value", "7 é").shows(exitOK, "depends on the lottery: 7 é", "holds: 4 entries, the first 2", "has place ")
	behindTLS(t, instance.BaseURL(), voucher)
	script := check.Value(os.ReadFile("../../docs/draw.md"))(t)
	program := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(script)
	check.That(t, program != nil, "docs/draw.md has no Python")
	entry := remote.Decode[model.Entry](t,
		s.Insist(t, http.MethodGet, "/vouchers/"+voucher+"/entry", s.Token(t, "user-3", model.RoleUser), nil))
	python := func() (string, error) {
		said, err := exec.CommandContext(check.Context(t), "python3", "-c", string(program[1]), instance.BaseURL(),
			voucher, entry.Nonce, "user-3").CombinedOutput()
		return string(said), err
	}
	if said, err := python(); err != nil || !strings.Contains(said, "holds: 4 entries, the first 2") ||
		!strings.Contains(said, "has place ") {
		t.Errorf("the Python of docs/draw.md: %v %s", err, said)
	}
	got = s.Insist(t, http.MethodPatch, "/admin/vouchers/"+voucher, s.Admin(t),
		map[string]any{"state": model.VoucherArchived})
	check.Equal(t, "the voucher is archived", got.Status, http.StatusOK)
	check.Equal(t, "nobody sees it", s.Insist(t, http.MethodGet, "/vouchers/"+voucher, "", nil).Status,
		http.StatusNotFound)
	verify("--commitment", commitment, "--leaf", leaf).shows(exitOK)
	for _, wrong := range [][]string{{"--commitment", strings.Repeat("0", 64)}, {"--leaf", strings.Repeat("0", 64)}, {"--value", "7"}} {
		verify(wrong...).shows(exitError)
	}
	ofDatabase(t, cfg, "UPDATE draw_places SET place = CASE place WHEN 1 THEN -3 WHEN 3 THEN -1 ELSE place END WHERE voucher_id = ?", voucher)
	ofDatabase(t, cfg, "UPDATE draw_places SET place = -place WHERE place < 0 AND voucher_id = ?", voucher)
	verify().shows(exitError, "place 1 belongs to")
	if said, err := python(); err == nil || !strings.Contains(said, "another order") {
		t.Errorf("a moved winner, in Python: %v %s", err, said)
	}
	for _, damage := range []struct{ statement, said string }{
		{"DELETE FROM draw_places WHERE place = 2 AND voucher_id = ?", "rows of draw_places: 3, and there should be 4"},
		{"DELETE FROM draw_entries WHERE voucher_id = ?", "rows of draw_entries: 0, and there should be 4"},
		{"DELETE FROM draws WHERE voucher_id = ?", "the row of draws, with the secret, is not there"},
	} {
		ofDatabase(t, cfg, damage.statement, voucher)
		for _, asked := range [][]string{{"audit"}, {"audit", "--repair", "--url", instance.BaseURL()}} {
			call(t, in(cfg.DataDir), "", asked...).shows(exitError, damage.said)
		}
	}
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/entries") {
			fmt.Fprint(w, `{"items":[],"next_cursor":"1"}`)
			return
		}
		fmt.Fprint(w, `{"algorithm":"seckill-draw-1","entries":1,"drawn_at":"2026-11-11T10:00:00Z","secret":"00"}`)
	}))
	defer endless.Close()
	call(t, nil, "", "draw", "verify", "--url", endless.URL, "--voucher", voucher).shows(exitError, "does not hold")
	for _, misuse := range []string{"draw", "draw verify", "draw verify --url x --voucher v", "draw verify --url http://127.0.0.1:1"} {
		call(t, nil, "", strings.Fields(misuse)...).shows(exitUsage)
	}
}

func behindTLS(t *testing.T, base, voucher string) {
	t.Helper()
	proxy := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(check.Value(url.Parse(base))(t)))
	defer proxy.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	check.Must(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: proxy.Certificate().Raw,
	}), 0o600))
	verify := []string{"draw", "verify", "--url", proxy.URL, "--voucher", voucher}
	call(t, nil, "", verify...).shows(exitError, "certificate")
	call(t, nil, "", append(verify, "--cacert", authority)...).shows(exitOK)
	for file, code := range map[string]int{authority + ".absent": exitError, "command_test.go": exitUsage} {
		call(t, nil, "", append(verify, "--cacert", file)...).shows(code, "--cacert")
	}
}
