package repair

import (
	"context"
	"fmt"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// shelf are the records of vouchers that nobody buys.
type shelf struct {
	dbSide

	records []model.EpochRecord
}

func (s shelf) Watched(context.Context) ([]model.EpochRecord, error) {
	return s.records, s.step("db.watched")
}

// readings counts how often each hot copy is read.
type readings struct {
	HotCopies

	of map[string]int
}

func (r readings) Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	for _, id := range ids {
		r.of[id]++
	}
	return r.HotCopies.Read(ctx, ids)
}

// What nobody buys costs next to nothing: one question in each look, and three for all vouchers in each sweep; the hot copy
// of each of them is read once in so many sweeps.
func TestQuietVouchersCostNextToNothing(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		const vouchers = 10 * closerSweeps
		all, hot := shelf{dbSide: dbSide{s}}, readings{s.redis, map[string]int{}}
		for i := range vouchers {
			v := s.voucher
			v.ID = fmt.Sprint("quiet", i)
			s.redis.Add(v)
			all.records = append(all.records, model.EpochRecord{VoucherID: v.ID, Epoch: 1, OpenEpoch: 1, Revision: v.Revision})
		}
		r := s.Reconciler
		r.deps.Epochs, r.deps.Hot = all, hot
		check.Must(t, r.watch(t.Context()))
		check.Equal(t, "hot copies read in the first sweep", len(hot.of), vouchers)
		clear(hot.of)
		s.steps = nil
		const looks = closerSweeps * int(sweepEvery/reconcileEvery)
		for range looks {
			servicetest.Pass(reconcileEvery)
			check.Must(t, r.watch(t.Context()))
		}
		for i := range vouchers {
			id := fmt.Sprint("quiet", i)
			if hot.of[id] != 1 {
				t.Errorf("the hot copy of %s was read %d times in %d sweeps", id, hot.of[id], closerSweeps)
			}
		}
		for step, want := range map[string]int{
			"db.watched": closerSweeps, "hot.quiet": closerSweeps, "hot.read": closerSweeps, "hot.incarnation": looks,
		} {
			check.Equal(t, "how often it was asked: "+step, s.count(step), want)
		}
		check.Equal(t, "questions altogether", len(s.steps), looks+3*closerSweeps)
	})
}
