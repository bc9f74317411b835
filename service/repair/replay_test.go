package repair

import (
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

func TestReplayMakesANewReservation(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.poison["o1"] = true
	s.publish(s.admit("o1", "u1"), s.admit("o2", "u2"))
	s.work(t)
	reserved := check.Value(s.Replayer.Replay(t.Context(), 1, ""))(t)
	if voucher, ok := model.VoucherOf(reserved.ID); reserved.ID == "o1" || !ok || voucher != "v1" {
		t.Errorf("the new id is %q", reserved.ID)
	}
	s.work(t)
	s.balanced(t)
	if row := s.rows[reserved.ID]; !row.Live() || row.UserID != "u1" || len(s.letters) != 0 {
		t.Errorf("%+v, %d letters", row, len(s.letters))
	}
}

// Its reservation still stands and it has no row: the order goes its way under the id that its user knows.
func TestReplayOfAReservationThatStandsPublishesIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.admit("o1", "u1")
	r.Epoch = 0 // the letter's is that of an earlier copy
	s.letters = []model.DeadLetter{{Sequence: 1, Reservation: &r}}
	got, err := s.Replayer.Replay(t.Context(), 1, "")
	if err != nil || got.ID != "o1" || got.Epoch != 1 || len(s.letters) != 0 || len(s.messages) != 1 {
		t.Errorf("%+v, %v; %d letters, %d messages", got, err, len(s.letters), len(s.messages))
	}
	s.work(t)
	s.balanced(t)
	check.That(t, s.rows["o1"].Live() && len(s.rows) == 1, "%+v", s.rows)
}

// An order that got its row after its letter was written needs no other one.
func TestReplayOfAnOrderThatWasPersistedAfterAllRemovesTheLetter(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.publish(s.admit("o1", "u1"))
	s.work(t)
	r := model.Reservation{Order: model.Order{ID: "o1", VoucherID: "v1", UserID: "u1"}}
	s.letters = []model.DeadLetter{{Sequence: 1, Reservation: &r}}
	got, err := s.Replayer.Replay(t.Context(), 1, "")
	check.That(t, err == nil && got.ID == "o1" && len(s.letters) == 0 && len(s.rows) == 1, "%+v, %v; %d letters, %d rows", got, err, len(s.letters), len(s.rows))
	s.balanced(t)
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
			servicetest.WantCode(t, check.ErrorOf(s.Replayer.Replay(t.Context(), 1, "")), tt.want)
			check.Equal(t, "letters", len(s.letters), 1)
		})
	}
}

// The buyer of a dead letter bought in time. That the sale has ended since is no reason to refuse an operator.
func TestReplayAfterTheSale(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.poison["o1"] = true
	s.publish(s.admit("o1", "u1"), s.admit("o2", "u2"))
	s.work(t)
	s.hot().Set("end_us", time.Now().Add(-time.Minute).UnixMicro())
	late := check.Value(s.redis.Reserve(t.Context(), []model.ReserveRequest{{OrderID: "o3.v1", VoucherID: "v1", UserID: "u3"}}))(t)
	check.Equal(t, "what a buyer hears who comes now", model.CodeOf(late[0].Err), model.CodeEnded)
	reserved := check.Value(s.Replayer.Replay(t.Context(), 1, ""))(t)
	s.work(t)
	check.Equal(t, "the order is live", s.rows[reserved.ID].Live(), true)
	check.Equal(t, "letters", len(s.letters), 0)
}
