package repair

import (
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

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
