package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/model"
)

// An order whose buyer the hot copy has forgotten, and a buyer it knows of no
// order: the audit names both, the command says so with its exit code, and puts
// them right when it is asked to. (Nobody reconciles here.)
func TestAuditNamesWhatDoesNotAddUp(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	api := start(t, s.with(settings{"SECKILL_ROLE": "api"}))
	voucher := api.onSale(t, 10)
	worker := launch(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	lost := api.becomes(t, api.accepted(t, voucher.ID, api.user(1)), model.OrderUnpaid)
	api.becomes(t, api.accepted(t, voucher.ID, api.user(2)), model.OrderUnpaid)
	api.quiet(t, voucher.ID, settlement)
	worker.kill()
	if said, err := runs(t, s, "audit", "--voucher", voucher.ID); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}

	options, err := redis.ParseURL(s["SECKILL_REDIS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	epoch := newCounterfeiter(t, s).copyOf(t, voucher.ID).Epoch
	buyers := fmt.Sprintf("seckill:v1:{%s}:%d:buyers", voucher.ID, epoch)
	stray := model.OrderID("06gvt0000000000000000stray", voucher.ID)
	if n, err := client.HDel(t.Context(), buyers, lost.UserID).Result(); err != nil || n != 1 {
		t.Fatalf("forget a buyer: %d %v", n, err)
	}
	if err := client.HSet(t.Context(), buyers, api.user(3), stray).Err(); err != nil {
		t.Fatal(err)
	}
	named := func(audit model.Audit, order string) bool {
		for _, drift := range audit.Drift {
			if drift.OrderID == order && drift.Found != "" {
				return true
			}
		}
		return false
	}
	until(t, 15*time.Second, "the audit names both", func() bool { // what is younger than 5 s is left out
		audit := api.audit(t, voucher.ID)
		return !audit.Balanced && named(audit, lost.ID) && named(audit, stray)
	})
	said, err := runs(t, s, "audit", "--voucher", voucher.ID)
	if err == nil || !strings.Contains(said, lost.ID) || !strings.Contains(said, stray) {
		t.Errorf("seckill audit: %v\n%s", err, said)
	}
	worker.start(t) // a repair that takes a rebuild needs somebody who consumes
	if said, err := runs(t, s, "audit", "--voucher", voucher.ID, "--repair"); err != nil {
		t.Errorf("seckill audit --repair: %v\n%s", err, said)
	}
	api.quiet(t, voucher.ID, settlement)
	if got, err := api.place(t, voucher.ID, lost.UserID); err != nil || decode[problem](t, got).OrderID != lost.ID {
		t.Errorf("the forgotten buyer: %d %s %v", got.status, got.body, err)
	}
	api.sellsOn(t, voucher.ID, 100)
}

// A waiting client hears of the commit when it happens, from an instance that has
// nothing to do with it, and at the latest when he wanted to.
func TestWaitAnswersWithTheCommit(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	api := start(t, s.with(settings{"SECKILL_ROLE": "api"}))
	start(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	voucher := api.onSale(t, 10)
	letGo := holdRow(t, s, voucher.ID)
	order := api.accepted(t, voucher.ID, api.user(1))
	token := api.token(t, order.UserID, model.RoleUser)

	began := time.Now()
	got := api.call(t, http.MethodGet, "/orders/"+order.ID+"?wait=500ms", token, nil)
	if took := time.Since(began); got.status != http.StatusOK || decode[model.Order](t, got).Status != model.OrderProcessing ||
		took < 500*time.Millisecond || took > time.Second {
		t.Errorf("after %v: %d %s", took, got.status, got.body)
	}
	waiting := api.later(t, http.MethodGet, "/orders/"+order.ID+"?wait=20s", token)
	<-time.After(300 * time.Millisecond)
	letGo()
	began = time.Now()
	got = <-waiting
	took := time.Since(began)
	if got.status != http.StatusOK || decode[model.Order](t, got).Status != model.OrderUnpaid {
		t.Errorf("%d %s", got.status, got.body)
	}
	if took > 250*time.Millisecond {
		t.Errorf("he heard of it %v after the row was free", took)
	}
	t.Logf("answered %v after the row was free", took)
}
