package command

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/app"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// ofDatabase changes rows behind the service's back.
func ofDatabase(t *testing.T, cfg config.Config, statement string, args ...any) {
	t.Helper()
	db := check.Value(app.OpenDatabase(t.Context(), cfg, Process{Stderr: os.Stderr}.newLogger(cfg)))(t)
	defer func() { check.Must(t, db.Close()) }()
	check.Must(t, check.ErrorOf(db.SQL().ExecContext(t.Context(), statement, args...)))
}

// setRow changes a voucher's row.
func setRow(t *testing.T, cfg config.Config, assignments, voucher string) {
	t.Helper()
	ofDatabase(t, cfg, "UPDATE vouchers SET "+assignments+" WHERE id = ?", voucher)
}

func TestAudit(t *testing.T) {
	t.Parallel()
	instance, cfg := started(t)
	environ := in(cfg.DataDir)
	s := counterOf(t, instance, cfg)
	if got := call(t, environ, "", "audit"); got.code != 0 || !strings.Contains(got.stdout, "0 of 0") {
		t.Errorf("of nothing: %+v", got)
	}
	first, second := s.putUp(t, 7), s.putUp(t, 3)
	check.Equal(t, "alice buys", s.buys(t, "alice", first).Status, http.StatusCreated)
	for _, asked := range [][]string{
		{"audit"},
		{"audit", "--url", instance.BaseURL()},
		{"audit", "--url", instance.BaseURL() + "/", "--token", s.Admin(t)},
		{"audit", "--voucher", first},
		{"audit", "--repair"},
	} {
		got := call(t, environ, "", asked...)
		row := words(got.stdout)
		if got.code != 0 || !strings.Contains(row, first+" 7 6 1 yes") {
			t.Errorf("%q: %+v", asked, got)
		}
		if both := strings.Contains(row, second+" 3 3 0 yes"); both == (len(asked) == 3 && asked[1] == "--voucher") {
			t.Errorf("%q: the second voucher is there: %v", asked, both)
		}
		if told := strings.Contains(got.stderr, "nothing to repair in sync mode"); told != (asked[len(asked)-1] == "--repair") {
			t.Errorf("%q: stderr %q", asked, got.stderr)
		}
	}

	setRow(t, cfg, "remaining = remaining - 1", second)
	for _, asked := range [][]string{{"audit"}, {"audit", "--url", instance.BaseURL()}, {"audit", "--voucher", second}} {
		got := call(t, environ, "", asked...)
		row := words(got.stdout)
		if got.code != exitError || !strings.Contains(row, second+" 3 2 0 NO") || !strings.Contains(got.stderr, "not add up") {
			t.Errorf("%q of what does not add up: %+v", asked, got)
		}
	}
	if got := call(t, environ, "", "audit", "--voucher", first); got.code != 0 {
		t.Errorf("the other voucher adds up: %+v", got)
	}
	for _, asked := range [][]string{
		{"audit", "--voucher", "nope"},
		{"audit", "--voucher", "nope", "--url", instance.BaseURL()},
		{"audit", "--url", instance.BaseURL(), "--token", s.Token(t, "alice", model.RoleUser)},
		{"audit", "--url", instance.OpsURL()},
		{"audit", "--url", "http://127.0.0.1:1"},
		{"audit", "--data-dir", filepath.Join(cfg.DataDir, "missing")},
	} {
		if got := call(t, environ, "", asked...); got.code != exitError || got.stderr == "" || got.stdout != "" {
			t.Errorf("%q: %+v", asked, got)
		}
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "missing")); !os.IsNotExist(err) {
		t.Errorf("an audit left a directory behind: %v", err)
	}
}

// TestAuditRepairsTheStock: units that leaked come back, units that were never
// there go, and an oversold voucher is said to be one.
func TestAuditRepairsTheStock(t *testing.T) {
	t.Parallel()
	instance, cfg := started(t, in(t.TempDir())...)
	environ := in(cfg.DataDir)
	s := counterOf(t, instance, cfg)
	leaked, extra, oversold := s.putUp(t, 10), s.putUp(t, 10), s.putUp(t, 10)
	for i := range 3 {
		for _, voucher := range []string{leaked, extra, oversold} {
			if a := s.buys(t, fmt.Sprint("user", i), voucher); a.Status != http.StatusCreated {
				t.Fatalf("%+v", a)
			}
		}
	}
	setRow(t, cfg, "remaining = 2", leaked)
	setRow(t, cfg, "remaining = 10", extra)
	setRow(t, cfg, "stock = 2, remaining = 1", oversold)

	got := call(t, environ, "", "audit")
	for _, said := range []string{
		leaked + " 10 2 3 NO the database itself: stock 10, remaining 2, live orders 3, difference 5; --repair --stock",
		extra + " 10 10 3 NO the database itself: stock 10, remaining 10, live orders 3, difference -3; --repair --stock",
		oversold + " 2 1 3 NO the database itself: stock 2, remaining 1, live orders 3, difference -2; --repair --stock",
	} {
		if got.code != exitError || !strings.Contains(words(got.stdout), said) {
			t.Errorf("audit: %+v, want %q", got, said)
		}
	}
	if got := call(t, environ, "", "audit", "--repair", "--voucher", leaked); got.code != exitError || !strings.Contains(got.stderr, "without --stock") {
		t.Errorf("audit --repair: %+v", got)
	}
	got = call(t, environ, "", "audit", "--repair", "--stock")
	for _, said := range []string{
		leaked + ": remaining was 2 and is 7 now, because of a stock of 10 units live orders hold 3",
		leaked + " 10 7 3 yes", extra + " 10 7 3 yes",
		oversold + ": it is oversold by 1",
		oversold + " 2 0 3 NO the database itself: stock 2, remaining 0, live orders 3, difference -1; oversold by 1,",
		"1 of 3",
	} {
		if got.code != exitError || !strings.Contains(words(got.stdout+got.stderr), said) {
			t.Errorf("audit --repair --stock: %+v, want %q", got, said)
		}
	}
	got = call(t, environ, "", "audit", "--repair", "--stock", "--voucher", leaked)
	if got.code != 0 || strings.Contains(got.stdout, "remaining was") {
		t.Errorf("repaired already: %+v", got)
	}
	if a := s.buys(t, "late", leaked); a.Status != http.StatusCreated {
		t.Errorf("%+v", a)
	}
	for _, wrong := range [][]string{{"audit", "--stock"}, {"audit", "--repair", "--stock", "--url", instance.BaseURL()}} {
		if got := call(t, environ, "", wrong...); got.code != exitUsage || !strings.Contains(got.stderr, "--stock") {
			t.Errorf("%q: %+v", wrong, got)
		}
	}
}

// TestAuditRepairsTheStockInAsync: the hot copy is made anew from the repaired row.
func TestAuditRepairsTheStockInAsync(t *testing.T) {
	t.Parallel()
	environ := asyncEnviron(t)
	instance, cfg := started(t, environ...)
	s := counterOf(t, instance, cfg)
	for name, remaining := range map[string]int{"leaked": 1, "extra": 3} {
		voucher := s.putUp(t, 3)
		s.persisted(t, "alice", voucher)
		setRow(t, cfg, fmt.Sprint("remaining = ", remaining), voucher)
		got := call(t, environ, "", "audit", "--repair", "--stock", "--voucher", voucher)
		if got.code != 0 || !strings.Contains(got.stdout, fmt.Sprintf("remaining was %d and is 2 now", remaining)) ||
			!strings.Contains(words(got.stdout), voucher+" 3 2 1 open 2 0 1 ") {
			t.Errorf("%s: %+v", name, got)
		}
		s.persisted(t, "bob", voucher)
		s.persisted(t, "carol", voucher)
		if a := s.buys(t, "dave", voucher); a.Code() != model.CodeSoldOut {
			t.Errorf("%s: a fourth buyer of three units: %+v", name, a)
		}
		if got := call(t, environ, "", "audit", "--voucher", voucher); got.code != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}

	// The copy does not wait for an audit that finds it wrong, which cannot
	// compare counts in a rush.
	voucher := s.putUp(t, 3)
	setRow(t, cfg, "remaining = 0", voucher)
	check.Must(t, Process{Stderr: os.Stderr}.withAsyncParts(t.Context(), cfg, func(a *app.AsyncParts) error {
		_, err := everything(a).repairStock(t.Context(), voucher)
		copies, readErr := a.Hot.Read(t.Context(), []string{voucher})
		if hot := copies[voucher]; hot.Epoch != 2 || hot.State != model.CopyOpen || hot.Voucher.Remaining != 3 {
			t.Errorf("the copy after the repair: %+v", hot)
		}
		return errors.Join(err, readErr)
	}))
}

// TestCommandsRefuseAnotherRedis than that of the instances, as an instance does: it knows none of the orders.
func TestCommandsRefuseAnotherRedis(t *testing.T) {
	t.Parallel()
	environ := asyncEnviron(t)
	instance, cfg := started(t, environ...)
	s := counterOf(t, instance, cfg)
	voucher := s.putUp(t, 2)
	s.persisted(t, "alice", voucher)
	other := append(slices.Clone(environ), "SECKILL_REDIS_URL="+testserver.Redis(t).URL())
	for _, asked := range [][]string{{"audit", "--repair"}, {"audit"}, {"audit", "--repair", "--stock"}, {"deadletters", "list"}} {
		if got := call(t, other, "", asked...); got.code != exitError || !strings.Contains(got.stderr, "uses another Redis") || got.stdout != "" {
			t.Errorf("%q: %+v", asked, got)
		}
	}
	s.persisted(t, "bob", voucher)
	if got := call(t, environ, "", "audit", "--repair"); got.code != 0 {
		t.Errorf("with the Redis of the instances: %+v", got)
	}
}

// TestAShopThatDoesNotAddUpTells: an order that somebody has deleted is missed without an audit, and not any more when it is repaired.
func TestAShopThatDoesNotAddUpTells(t *testing.T) {
	t.Parallel()
	instance, cfg := started(t)
	s := counterOf(t, instance, cfg)
	voucher := s.putUp(t, 3)
	check.Equal(t, "alice buys", s.buys(t, "alice", voucher).Status, http.StatusCreated)
	visitor := client(t)
	told := func() bool {
		response, err := visitor.Get(instance.OpsURL() + "/metrics")
		check.Must(t, err)
		defer response.Body.Close()
		return strings.Contains(string(check.Value(io.ReadAll(response.Body))(t)), `seckill_voucher_units_off{voucher_id="`+voucher+`"} 1`)
	}
	ofDatabase(t, cfg, "DELETE FROM orders WHERE voucher_id = ?", voucher)
	check.Patiently(t, "it is told", told)
	if got := call(t, in(cfg.DataDir), "", "audit", "--repair", "--stock"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	check.Patiently(t, "it is told no more", func() bool { return !told() })
}
