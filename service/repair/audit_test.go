package repair

import (
	"errors"
	"fmt"
	"strings"
	"testing"
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
		"another stock": {func(s *stage) { s.hot().Set("stock", 11) }, "-"},
		// Every order agrees by its id, and the database adds up by itself. Stock would be lost to the buyers.
		"units that only the database has": {func(s *stage) { s.hot().Set("missing", 2) }, "-"},
		"a database too low":               {func(s *stage) { s.voucher.Remaining = 8 }, "-"},
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
		s.redis.Lose()
		audit := check.Value(s.Auditor.Audit(t.Context(), "v1"))(t)
		check.That(t, !audit.Balanced && audit.Redis.State == "closed", "of a closed copy, on sale: %+v", audit)
		s.voucher.EndAt = time.Now().Add(-2 * time.Hour) // it may be gone by now
		check.Equal(t, "balanced, long over", check.Value(s.Auditor.Audit(t.Context(), "v1"))(t).Balanced, true)
	})
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
		s.sell("o5", "u5")
		s.hot().Mark("u5", "o9")
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

// The buyer of a dead letter bought in time. That the sale has ended since is no reason to refuse an operator.
func TestReplayMakesANewReservation(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.poison["o1"] = true
	s.publish(s.admit("o1", "u1"), s.admit("o2", "u2"))
	s.work(t)
	s.hot().Set("end_us", time.Now().Add(-time.Minute).UnixMicro())
	late := check.Value(s.redis.Reserve(t.Context(),
		[]model.ReserveRequest{{OrderID: "o3.v1", VoucherID: "v1", UserID: "u3"}}))(t)
	check.Equal(t, "what a buyer hears who comes now", model.CodeOf(late[0].Err), model.CodeEnded)
	reserved := check.Value(s.Replayer.Replay(t.Context(), 1, ""))(t)
	voucher, ok := model.VoucherOf(reserved.ID)
	check.That(t, reserved.ID != "o1" && ok && voucher == "v1", "the new id is %q", reserved.ID)
	s.work(t)
	s.balanced(t)
	row := s.rows[reserved.ID]
	check.That(t, row.Live() && row.UserID == "u1" && len(s.letters) == 0, "%+v, %d letters", row, len(s.letters))
}

// The order goes on under the id that its user knows. One that got its row after its letter needs no other one.
func TestReplayOfAnOrderThatStands(t *testing.T) {
	t.Parallel()
	for _, persisted := range []bool{false, true} {
		s := newStage(t)
		r := s.admit("o1", "u1")
		if persisted {
			s.publish(r)
			s.work(t)
		}
		r.Epoch = 0 // the letter's is that of an earlier copy
		s.letters = []model.DeadLetter{{Sequence: 1, Reservation: &r}}
		got := check.Value(s.Replayer.Replay(t.Context(), 1, ""))(t)
		check.That(t, got.ID == "o1" && len(s.letters) == 0 && (len(s.messages) == 0) == persisted,
			"%+v; %d letters, %d messages", got, len(s.letters), len(s.messages))
		s.work(t)
		s.balanced(t)
		check.That(t, s.rows["o1"].Live() && len(s.rows) == 1, "%+v", s.rows)
	}
}

func TestReplayThatIsRefusedKeepsTheLetter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare func(*stage)
		want    model.Code
	}{
		"user has an order":  {func(s *stage) { s.sell("o2", "u1") }, model.CodeAlreadyOrdered},
		"nothing is left":    {func(s *stage) { s.hot().Set("stock", 0) }, model.CodeSoldOut},
		"the copy is closed": {func(s *stage) { s.redis.Lose() }, model.CodeUnavailable},
		"the queue is away": {func(s *stage) {
			s.fail("queue.publish", model.Unavailable("away", model.ErrUnknownOutcome))
		}, model.CodeUnavailable},
		"rebuilt meanwhile": {func(s *stage) {
			s.on["queue.publish"] = func() error { s.hot().Set("epoch", 2); return nil }
		}, model.CodeUnavailable},
		"no order in it": {func(s *stage) { s.letters[0].Reservation = nil }, model.CodeConflict},
		"no such letter": {func(s *stage) { s.letters[0].Sequence = 9 }, model.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			r := model.Reservation{Order: model.Order{ID: "o1", VoucherID: "v1", UserID: "u1"}}
			s.letters = []model.DeadLetter{{Sequence: 1, Reservation: &r}}
			tt.prepare(s)
			servicetest.Hears(t, "the caller", check.ErrorOf(s.Replayer.Replay(t.Context(), 1, "")), tt.want)
			check.Equal(t, "letters", len(s.letters), 1)
		})
	}
}
