package hotcopy_test

import (
	"slices"
	"testing"

	"seckill/internal/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// Whatever Redis forgets changes its incarnation, and nothing else does.
func TestIncarnation(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newSale(t, server.URL(), hotcopy.Options{}, 10)
	seen := ""
	for _, loss := range []func(){
		func() {},
		func() { must(t, s.client.FlushAll(t.Context()).Err()) },
		func() { server.Kill(); server.Start() },
		func() { // demoted and promoted again: its run id is the same
			must(t, s.client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
			must(t, s.client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
		},
	} {
		loss()
		now, err := s.copies.Incarnation(t.Context())
		must(t, err)
		again, err := s.copies.Incarnation(t.Context())
		if must(t, err); now == seen || again != now {
			t.Errorf("before %q, now %q, again %q", seen, now, again)
		}
		seen = now
	}
}

// A copy is quiet when it is there, in the epoch asked for, and has nothing reserved.
func TestQuiet(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		quiet := func() []bool {
			return s.copies.Quiet(t.Context(), []model.EpochRecord{
				{VoucherID: s.v.ID, Epoch: s.epoch}, {VoucherID: s.v.ID, Epoch: s.epoch + 1}, {VoucherID: newID(t), Epoch: 1},
			})
		}
		if got := quiet(); !slices.Equal(got, []bool{true, false, false}) {
			t.Errorf("%v", got)
		}
		_, err := s.copies.Reserve(t.Context(), []model.ReserveRequest{{OrderID: model.OrderID(newID(t), s.v.ID), VoucherID: s.v.ID, UserID: "u"}})
		if must(t, err); quiet()[0] {
			t.Error("something is reserved")
		}
	})
}
