package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// An order whose buyer the hot copy has forgotten, and a buyer it knows of no
// order: the audit names both, the command says so with its exit code, and puts
// them right when it is asked to. (Nobody reconciles here.)
func TestAuditNamesWhatDoesNotAddUp(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	front := start(t, s.role("api"))
	voucher := front.onSale(t, 10)
	worker := check.Value(begin(t, s.role("worker")))(t)
	lost := front.becomes(t, front.accepted(t, voucher.ID, front.user(1)), model.OrderUnpaid)
	front.becomes(t, front.accepted(t, voucher.ID, front.user(2)), model.OrderUnpaid)
	front.quiet(t, voucher.ID)
	halt(worker)

	client := redis.NewClient(check.Value(redis.ParseURL(s["SECKILL_REDIS_URL"]))(t))
	defer client.Close()
	epoch := newCounterfeiter(t, s).copyOf(t, voucher.ID).Epoch
	buyers := fmt.Sprintf("seckill:v1:{%s}:%d:buyers", voucher.ID, epoch)
	stray := model.OrderID("06gvt0000000000000000stray", voucher.ID)
	check.Equal(t, "forgotten buyers", check.Value(client.HDel(t.Context(), buyers, lost.UserID).Result())(t), 1)
	check.Must(t, client.HSet(t.Context(), buyers, front.user(3), stray).Err())
	named := func(audit model.Audit, order string) bool {
		for _, drift := range audit.Drift {
			if drift.OrderID == order && drift.Found != "" {
				return true
			}
		}
		return false
	}
	check.Patiently(t, "the audit names both", func() bool { // what is younger than 5 s is left out
		audit := front.Audit(t, voucher.ID)
		return !audit.Balanced && named(audit, lost.ID) && named(audit, stray)
	})
	said, err := runs(t, s, "audit", "--voucher", voucher.ID)
	if err == nil || !strings.Contains(said, lost.ID) || !strings.Contains(said, stray) {
		t.Errorf("seckill audit: %v\n%s", err, said)
	}
	start(t, s.role("worker")) // a repair that takes a rebuild needs somebody who consumes
	if said, err := runs(t, s, "audit", "--voucher", voucher.ID, "--repair"); err != nil {
		t.Errorf("seckill audit --repair: %v\n%s", err, said)
	}
	front.quiet(t, voucher.ID)
	check.Equal(t, "order of the forgotten buyer", front.accepted(t, voucher.ID, lost.UserID).ID, lost.ID)
	front.sellsOn(t, voucher.ID, 100)
}
