package command

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/api"
	"seckill/internal/app"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func started(t *testing.T, environ ...string) (*app.Instance, config.Config) {
	t.Helper()
	cfg := check.Value(config.Load(append([]string{
		"SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0", "SECKILL_LOG_LEVEL=error",
		"SECKILL_DATA_DIR=" + t.TempDir(),
	}, environ...)))(t)
	instance := check.Value(app.Start(t.Context(), cfg, Process{Stderr: os.Stderr}.newLogger(cfg)))(t)
	t.Cleanup(func() { halt(instance) })
	return instance, cfg
}

// halt stops an instance without the grace in which others notice.
func halt(instance *app.Instance) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	instance.Stop(now)
}

func client(t *testing.T) *http.Client {
	t.Helper()
	transport := api.Transport(4)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got := call(t, in(dir), "", "token", "--users", "3", "--first", "41")
	check.Need(t, got.code == 0 && got.stderr == "", "%+v", got)
	admin := call(t, in(dir), "", "token", "--users", "1", "--role", "admin", "--ttl", "1m")
	authority := check.Value(app.Tokens(t.Context(), check.Value(config.Load(in(dir)))(t)))(t)
	lines := strings.Split(strings.TrimSuffix(got.stdout+admin.stdout, "\n"), "\n")
	till := call(t, in(dir), "", "token", "--users", "1", "--role", "cashier")
	lines = append(lines, strings.TrimSpace(till.stdout))
	want := []string{"41 user ", "42 user ", "43 user ", "1 admin admin", "1 admin cashier"}
	check.Need(t, len(lines) == len(want), "%d lines: %q", len(lines), lines)
	for i, line := range lines {
		claims, err := authority.Verify(t.Context(), line)
		if err != nil || claims.Subject+" "+string(claims.Role)+" "+string(claims.Level) != want[i] {
			t.Errorf("token %d is %+v, %v; want %s", i, claims, err, want[i])
		}
	}
}

func TestTokensOfARealDeployment(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	check.Must(t, os.WriteFile(file, []byte("new=0123456789abcdef0123456789abcdef\n"), 0o600))
	dir := filepath.Join(t.TempDir(), "data")
	environ := append(in(dir), "SECKILL_DATABASE_DSN=root@tcp(127.0.0.1:1)/x", "SECKILL_JWT_SECRET_FILE="+file)
	got := call(t, environ, "", "token", "--users", "1")
	check.That(t, got.code == 0 && strings.Count(got.stdout, ".") == 2, "%+v", got)
	_, err := os.Stat(dir)
	check.That(t, os.IsNotExist(err), "a data directory was made: %v", err)
}

func login(t *testing.T, base, username, password string) (status int) {
	t.Helper()
	body := check.Value(json.Marshal(map[string]string{"username": username, "password": password}))(t)
	check.Patiently(t, "the login is decided", func() bool {
		response, err := client(t).Post(base+"/api/v1/auth/login", "application/json", bytes.NewReader(body))
		check.Must(t, err)
		check.Must(t, response.Body.Close())
		status = response.StatusCode
		return status != http.StatusServiceUnavailable
	})
	return status
}

func TestAdminCreate(t *testing.T) {
	t.Parallel()
	instance, cfg := started(t)
	environ := in(cfg.DataDir)
	create := func(username, stdin string) called {
		return call(t, environ, stdin, "admin", "create", "--username", username)
	}
	create("Root", "correct horse\r\nsecond line\n").shows(exitOK, "Root")
	if status := login(t, instance.BaseURL(), "root", "correct horse"); status != http.StatusOK {
		t.Errorf("the administrator logs in: %d", status)
	}
	if status := login(t, instance.BaseURL(), "root", "correct horse\r"); status != http.StatusUnauthorized {
		t.Errorf("a wrong password: %d", status)
	}
	for name, test := range map[string]struct{ username, stdin, stderr string }{
		"taken":          {"ROOT", "correct horse", "taken"},
		"short password": {"other", "123456789", "10 to 128 characters"},
		"long password":  {"other", strings.Repeat("x", 129), "10 to 128 characters"},
		"huge password":  {"other", strings.Repeat("x", 1<<20), "10 to 128 characters"},
		"no password":    {"other", "", "no password"},
		"empty line":     {"other", "\ncorrect horse", "no password"},
		"bad username":   {"a b", "correct horse", "username"},
	} {
		got := create(test.username, test.stdin)
		check.That(t, got.code == exitError && strings.Contains(got.stderr, test.stderr) && got.stdout == "",
			"%s: %+v", name, got)
	}
}

func TestAdminCreateOnARealDatabase(t *testing.T) {
	t.Parallel()
	environ := []string{"SECKILL_DATABASE_DSN=" + testserver.Schema(t)}
	got := call(t, environ, "correct horse", "admin", "create", "--username", "root")
	check.Need(t, got.code == 0 && got.stderr == "", "%+v", got)
	again := call(t, environ, "correct horse", "admin", "create", "--username", "root")
	check.That(t, again.code == exitError && strings.Contains(again.stderr, "taken"), "again: %+v", again)
	// Without its migrations the schema has no place for accounts.
	empty := []string{"SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_MIGRATE=off"}
	call(t, empty, "correct horse", "admin", "create", "--username", "root").shows(exitError)
}

func TestAdministratorsAreLookedAfter(t *testing.T) {
	t.Parallel()
	instance, cfg := started(t)
	admin := func(stdin string, args ...string) called {
		t.Helper()
		return call(t, in(cfg.DataDir), stdin, append([]string{"admin"}, args...)...)
	}
	listed := func() []string { return strings.Split(strings.TrimSpace(admin("", "list").stdout), "\n") }
	if lines := listed(); len(lines) != 1 || !strings.HasPrefix(lines[0], "USERNAME") {
		t.Errorf("nobody is there: %q", lines)
	}
	for _, name := range []string{"zoe", "Adam"} {
		admin("correct horse\n", "create", "--username", name).shows(exitOK)
	}
	body := `{"username":"buyer","password":"correct horse"}`
	response, err := client(t).Post(instance.BaseURL()+"/api/v1/auth/register", "application/json",
		strings.NewReader(body))
	check.Need(t, err == nil && response.StatusCode == http.StatusCreated, "register: %v, %v", response, err)
	response.Body.Close()

	for _, step := range []struct {
		args, stdin, says string
		password          string
		status            int // of a login afterwards
	}{
		{"disable --username ADAM", "", "disabled the administrator", "correct horse", http.StatusUnauthorized},
		{"disable --username adam", "", "disabled already", "correct horse", http.StatusUnauthorized},
		{
			"passwd --username adam", "another horse\r\n", "replaced the password", "another horse",
			http.StatusUnauthorized,
		},
		{"enable --username adam", "", "enabled the administrator", "another horse", http.StatusOK},
		{"enable --username adam", "", "enabled already", "correct horse", http.StatusUnauthorized},
	} {
		got := admin(step.stdin, strings.Fields(step.args)...)
		if got.code != 0 || got.stderr != "" || !strings.Contains(got.stdout, step.says) ||
			strings.Contains(got.stdout, "horse") {
			t.Errorf("%s: %+v", step.args, got)
		}
		if status := login(t, instance.BaseURL(), "adam", step.password); status != step.status {
			t.Errorf("a login after %s: %d, want %d", step.args, status, step.status)
		}
		lines := listed()
		disabled := strings.Contains(step.says, "disabled") || strings.Contains(step.says, "replaced")
		if len(lines) != 3 || !strings.HasPrefix(lines[1], "Adam ") || !strings.HasPrefix(lines[2], "zoe ") ||
			strings.Contains(lines[1], " disabled ") != disabled || !strings.Contains(lines[2], " enabled ") {
			t.Errorf("after %s: %q", step.args, lines)
		}
	}
	grade := func(args string, want ...string) {
		t.Helper()
		admin("", strings.Fields(args)...).shows(exitOK, "has the role "+args[strings.LastIndex(args, " ")+1:])
		for i, line := range listed()[1:] {
			check.That(t, strings.Contains(line, " "+want[i]+" "), "after %s: %q, want %v", args, line, want)
		}
	}
	grade("role --username Zoe --role viewer", "admin", "viewer")
	admin("correct horse", "create", "--username", "till", "--role", "cashier").shows(exitOK)
	grade("role --username zoe --role operator", "admin", "cashier", "operator")
	for _, args := range []string{"role --username zoe", "role --username zoe --role user", "create --username x --role root"} {
		admin("correct horse", strings.Fields(args)...).shows(exitUsage, "--role is")
	}
	for args, says := range map[string]string{
		"role --username buyer --role admin": "no such administrator",
		"disable --username nobody":          "no such administrator",
		"enable --username buyer":            "no such administrator",
		"passwd --username buyer":            "no such administrator",
		"passwd --username Ä":                "no such administrator",
	} {
		admin("another horse", strings.Fields(args)...).shows(exitError, says)
	}
	admin("short", "passwd", "--username", "zoe").shows(exitError, "10 to 128 characters")
	if status := login(t, instance.BaseURL(), "zoe", "correct horse"); status != http.StatusOK {
		t.Errorf("zoe logs in: %d", status)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	for name, environ := range map[string][]string{
		"embedded": in(t.TempDir()),
		"MariaDB":  {"SECKILL_DATABASE_DSN=" + testserver.Schema(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "embedded" {
				call(t, environ, "", "migrate", "status").shows(exitError, "no embedded database")
			} else if got := call(t, environ, "", "migrate", "status"); got.code != 0 ||
				!strings.Contains(got.stdout, "baseline.sql") || !strings.Contains(got.stdout, "  no\n") {
				t.Errorf("status before: %+v", got)
			}
			for range 2 {
				got := call(t, environ, "", "migrate")
				check.That(t, got.code == 0 && got.stderr == "" && !strings.Contains(got.stdout, "  no\n"),
					"migrate: %+v", got)
			}
			if got := call(t, environ, "", "migrate", "status"); got.code != 0 ||
				!strings.Contains(got.stdout, "baseline.sql") || strings.Contains(got.stdout, "  no\n") {
				t.Errorf("status after: %+v", got)
			}
		})
	}
}
