package command

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// attended is a server in this process, whose output a person reads, or a file keeps.
type attended struct {
	seen, logged *check.Log
	stop         func()
}

// attend starts a server, and waits until its output, or else its log, has a text.
func attend(t *testing.T, person bool, until string, environ ...string) attended {
	t.Helper()
	s := attended{seen: &check.Log{}, logged: &check.Log{}}
	process := Process{
		Environ: append([]string{"SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0", "SECKILL_LOG_LEVEL=debug"}, environ...),
		Args:    []string{"serve"}, Stdin: strings.NewReader(""), Stdout: s.seen, Stderr: s.logged,
	}
	if person {
		process.Stdout, s.seen = terminal(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- Run(ctx, process) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		check.Equal(t, "the exit code", <-done, exitOK)
	})
	t.Cleanup(s.stop)
	check.Eventually(t, "the server says "+until, func() bool { return s.seen.Has(until) || s.logged.Has(until) })
	return s
}

// welcomes is how the welcome ends.
const welcomes = "Stop with Ctrl-C"

// door is what a server says of its console.
func (s attended) door(t *testing.T) (base, username, password string) {
	t.Helper()
	text := s.seen.String()
	found := regexp.MustCompile(`Open in a browser:\s+(http://127\.0\.0\.1:\d+)/console\s`).FindStringSubmatch(text)
	if found == nil || strings.Index(text, found[0]) > strings.Index(text, "API") {
		t.Fatalf("the console's address does not come first:\n%s", text)
	}
	if account := regexp.MustCompile(`username +(\S+)\s+password +(\S+)`).FindStringSubmatch(text); account != nil {
		username, password = account[1], account[2]
	}
	return found[1], username, password
}

// tokens finds what opens the API.
func (s attended) tokens() []string {
	return regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`).FindAllString(s.seen.String(), -1)
}

// A person who knows nothing but the first lines on the terminal is in the console, and has tokens to paste. The
// password is there once, and in no log.
func TestTheFirstStartMakesAnAdministrator(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := attend(t, true, welcomes, in(dir)...)
	base, username, password := first.door(t)
	if username != "admin" || len(password) < 16 {
		t.Fatalf("it prints %q and %q:\n%s", username, password, first.seen)
	}
	if strings.Contains(first.logged.String(), password) {
		t.Error("the password is in the log")
	}
	check.Equal(t, "tokens on the terminal, one in each of three lines", len(first.tokens()), 3)
	c := client(t)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := c.PostForm(base+"/console/sign-in", url.Values{"username": {username}, "password": {password}})
	check.Must(t, err)
	check.Must(t, response.Body.Close())
	if response.StatusCode != http.StatusSeeOther || response.Header.Get("Location") != "/console" {
		t.Errorf("signing in as %s: %d", username, response.StatusCode)
	}
	first.stop()

	again := attend(t, true, welcomes, in(dir)...)
	base, username, other := again.door(t)
	if username+other != "" || strings.Contains(again.seen.String(), "admin create") {
		t.Errorf("the second start makes an account, too:\n%s", again.seen)
	}
	if status := login(t, base, "admin", password); status != http.StatusOK {
		t.Errorf("the password of the first start: %d", status)
	}
	if got := call(t, in(dir), "", "admin", "list"); strings.Count(got.stdout, "\n") != 2 || !strings.Contains(got.stdout, "admin") {
		t.Errorf("administrators: %+v", got)
	}
}

// What nobody reads at once is a log. A token in it would be an administrator for whoever reads the log. It says how an
// account is made.
func TestTokensAreForTheTerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := attend(t, false, welcomes, in(dir)...)
	base, username, password := s.door(t)
	if username+password != "" || len(s.tokens()) > 0 {
		t.Errorf("a password or a token is in a log:\n%s", s.seen)
	}
	command := regexp.MustCompile(`seckill admin create .*`).FindString(s.seen.String())
	if got := call(t, in(dir), "", "admin", "list"); command == "" || strings.Count(got.stdout, "\n") != 1 {
		t.Fatalf("%q, administrators: %+v", command, got)
	}
	pasted(t, "echo 'correct horse' | "+strings.ReplaceAll(command, "NAME", "grace"))
	if status := login(t, base, "grace", "correct horse"); status != http.StatusOK {
		t.Errorf("the account that it makes: %d", status)
	}
}

// A buyer who has the name keeps it.
func TestAFirstStartBesideABuyerOfTheName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	quiet := attend(t, false, welcomes, in(dir)...)
	base, _, _ := quiet.door(t)
	body := strings.NewReader(`{"username":"Admin","password":"correct horse"}`)
	response, err := client(t).Post(base+"/api/v1/auth/register", "application/json", body)
	check.Must(t, err)
	check.Must(t, response.Body.Close())
	check.Equal(t, "the buyer registers", response.StatusCode, http.StatusCreated)
	quiet.stop()
	s := attend(t, true, welcomes, in(dir)...)
	base, username, _ := s.door(t)
	if username != "" || !strings.Contains(s.seen.String(), "seckill admin create") {
		t.Errorf("it says:\n%s", s.seen)
	}
	check.Equal(t, "the buyer's login", login(t, base, "admin", "correct horse"), http.StatusOK)
}

func TestWithoutTheConsoleThereIsNoAccount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := attend(t, true, welcomes, append(in(dir), "SECKILL_CONSOLE=off")...)
	if text := s.seen.String(); strings.Contains(text, "/console") || strings.Contains(text, "password") {
		t.Errorf("it says:\n%s", text)
	}
	if got := call(t, in(dir), "", "admin", "list"); strings.Count(got.stdout, "\n") != 1 {
		t.Errorf("administrators: %+v", got)
	}
}

// A database of its own is a real one: nobody gets in by starting the server.
func TestARealDatabaseGetsNoAccountByItself(t *testing.T) {
	t.Parallel()
	environ := []string{
		"SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + testserver.SharedRedis(t),
		"SECKILL_JWT_SECRET=0123456789abcdef0123456789abcdef", "SECKILL_CONSOLE=on",
	}
	s := attend(t, true, `"msg":"listening"`, environ...)
	s.stop()
	if text := s.seen.String(); text != "" {
		t.Errorf("it prints:\n%s", text)
	}
	if got := call(t, environ[:1], "", "admin", "list"); got.code != 0 || strings.Count(got.stdout, "\n") != 1 {
		t.Errorf("administrators: %+v", got)
	}
}
