package repair

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

func TestAuditNamesWhatDoesNotAddUp(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil func(*stage)
		found string // of order o1; empty: nothing, and balanced
	}{
		"nothing":                       {func(s *stage) { s.sell("o1", "u1") }, ""},
		"a live order without a mark":   {func(s *stage) { s.sell("o1", "u1"); s.hot().Drop("buyers", "u1") }, "does not know"},
		"a mark without an order":       {func(s *stage) { s.hot().Mark("u1", "o1") }, "without an order"},
		"a closed order with its mark":  {func(s *stage) { s.sell("o1", "u1"); s.cancel("o1") }, "still taken"},
		"a reservation that is nowhere": {func(s *stage) { s.admit("o1", "u1") }, "neither"},
		"a reservation in the queue":    {func(s *stage) { s.publish(s.admit("o1", "u1")) }, ""},
		"one that was not settled": {func(s *stage) {
			r := s.admit("o1", "u1")
			s.sell("o1", "u1")
			s.hot().Hold(r.Order)
		}, "still reserved"},
		"another stock":      {func(s *stage) { s.hot().Set("stock", 11) }, "-"},
		"a database too low": {func(s *stage) { s.voucher.Remaining = 8 }, "-"},
	} {
		onStages(t, name, func(t *testing.T, s *stage) {
			for i := range 20 {
				s.voucher.Stock++
				s.voucher.Remaining++
				s.hot().Set("stock", s.hot().Voucher().Stock+1)
				s.sell(fmt.Sprint("x", i), fmt.Sprint("x", i))
			}
			tt.spoil(s)
			servicetest.Pass(time.Minute) // nothing is young any more
			audit := check.Value(s.Auditor.Audit(t.Context(), "v1"))(t)
			check.That(t, audit.Balanced == (tt.found == ""), "balanced %v: %+v", audit.Balanced, audit)
			if named := tt.found != "" && tt.found != "-"; named != (len(audit.Drift) == 1) {
				t.Fatalf("drift: %+v", audit.Drift)
			} else if named && (audit.Drift[0].OrderID != "o1" || !strings.Contains(audit.Drift[0].Found, tt.found)) {
				t.Errorf("drift: %+v, want o1 %s", audit.Drift, tt.found)
			}
			check.That(t, audit.Redis.Reserved+int64(len(s.hot().Marks()))-audit.Redis.Buyers == int64(len(s.hot().Pending())), "redis: %+v", audit.Redis)
		})
	}
}

func TestAuditLeavesOutWhatIsYoung(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.admit("o1", "u1")
		s.sell("o2", "u2")
		s.cancel("o2")
		servicetest.Pass(4 * time.Second)
		check.Equal(t, "balanced", check.Value(s.Auditor.Audit(t.Context(), "v1"))(t).Balanced, true)
		servicetest.Pass(2 * time.Second)
		check.Equal(t, "orders that are named later", len(check.Value(s.Auditor.Audit(t.Context(), "v1"))(t).Drift), 2)
	})
}

func TestAuditOfAClosedCopy(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.redis.Lose()
	audit, err := s.Auditor.Audit(t.Context(), "v1")
	check.That(t, err == nil && !audit.Balanced && audit.Redis.State == "closed", "on sale: %+v, %v", audit, err)
	s.voucher.EndAt = time.Now().Add(-2 * time.Hour) // it may be gone by now
	audit, err = s.Auditor.Audit(t.Context(), "v1")
	check.That(t, err == nil && audit.Balanced, "long over: %+v, %v", audit, err)
}

func TestAuditIsUnavailableWithoutRedisOrTheQueue(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"hot.read", "queue.backlog"} {
		s := newStage(t)
		s.fail(step, errors.New("connection refused"))
		servicetest.Hears(t, step, check.ErrorOf(s.Auditor.Audit(t.Context(), "v1")), model.CodeUnavailable)
	}
}

func TestRepair(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o1", "u1")
		s.hot().Drop("buyers", "u1")
		s.sell("o2", "u2")
		s.cancel("o2")
		s.hot().Mark("u3", "o3")
		s.admit("o4", "u4")
		servicetest.Pass(time.Minute)
		done := make(chan struct{})
		go func() {
			defer close(done)
			servicetest.Pass(time.Second)
			s.work(t)
		}()
		check.Must(t, check.ErrorOf(s.Auditor.Repair(t.Context(), "v1", "")))
		<-done
		audit, err := s.Auditor.Audit(t.Context(), "v1")
		check.That(t, err == nil && audit.Balanced && len(audit.Drift) == 0, "%+v, %v", audit, err)
		s.balanced(t)
		check.That(t, s.rows["o4"].Live(), "%+v", s.rows["o4"])
	})
}

// BenchmarkAudit measures that the time of an audit grows with the orders, and not with their square.
func BenchmarkAudit(b *testing.B) {
	for _, orders := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint("orders=", orders), func(b *testing.B) {
			s := newStage(b)
			stock := int64(orders)
			s.offer(stock)
			for i := range orders {
				s.sell(fmt.Sprintf("order-%d.v1", i), fmt.Sprint("user", i))
			}
			for b.Loop() {
				check.Must(b, check.ErrorOf(s.Auditor.Audit(b.Context(), "v1")))
			}
		})
	}
}

// Every order agrees by its id, and the database adds up by itself. A hot copy that has fewer units to sell than the
// database is not balanced all the same: stock would be lost to the buyers.
func TestAuditComparesWhatIsLeft(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o1", "u1")
		<-time.After(time.Minute) // nothing is young any more
		synctest.Wait()
		audit := check.Value(s.Auditor.Audit(t.Context(), "v1"))(t)
		check.Equal(t, "balanced", audit.Balanced, true)
		s.hot().Set("missing", 2)
		audit = check.Value(s.Auditor.Audit(t.Context(), "v1"))(t)
		check.Equal(t, "balanced with two units that only the database has", audit.Balanced, false)
		check.Equal(t, "orders that drift", len(audit.Drift), 0)
	})
}
