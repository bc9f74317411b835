package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/model"
)

// An order whose buyer the hot copy has forgotten, and a buyer it knows of no
// order: the audit names both, the command says so with its exit code, and puts
// them right when it is asked to. (Nobody reconciles here.)
func TestAuditNamesWhatDoesNotAddUp(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	api := start(t, s.with(settings{"SECKILL_ROLE": "api"}))
	voucher := api.undivided(t, 10)
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
// nothing to do with it, and at the latest when the client wanted to.
func TestWaitAnswersWithTheCommit(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	api := start(t, s.with(settings{"SECKILL_ROLE": "api"}))
	start(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	buyers := 0
	undecided := func() (path, token string, letGo func()) {
		voucher := api.onSale(t, 10)
		letGo = sync.OnceFunc(holdRow(t, s, voucher.ID))
		buyers++
		order := api.accepted(t, voucher.ID, api.user(buyers))
		return "/orders/" + order.ID, api.token(t, order.UserID, model.RoleUser), letGo
	}
	testserver.Undisturbed(t, 100*time.Millisecond, func() error {
		path, token, letGo := undecided()
		defer letGo()
		began := time.Now()
		got := api.call(t, http.MethodGet, path+"?wait=500ms", token, nil)
		took := time.Since(began)
		if got.status != http.StatusOK || decode[model.Order](t, got).Status != model.OrderProcessing || took < 500*time.Millisecond {
			t.Fatalf("after %v: %d %s", took, got.status, got.body)
		}
		if took > time.Second {
			return fmt.Errorf("a wait of 500 ms took %v", took)
		}
		return nil
	})
	// Without the message the client hears by a look of the instance, which is once in a second: too late for
	// two of three commits.
	for range 3 {
		testserver.Undisturbed(t, 50*time.Millisecond, func() error {
			path, token, letGo := undecided()
			defer letGo()
			waiting := api.later(t, http.MethodGet, path+"?wait=20s", token)
			<-time.After(300 * time.Millisecond)
			letGo()
			free := time.Now()
			got := <-waiting
			took := time.Since(free)
			if got.status != http.StatusOK || decode[model.Order](t, got).Status != model.OrderUnpaid {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if took > 250*time.Millisecond {
				return fmt.Errorf("heard of %v after the row was free", took)
			}
			t.Logf("answered %v after the row was free", took)
			return nil
		})
	}
}
