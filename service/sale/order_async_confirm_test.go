package sale

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository/hotcopy/hotcopytest"
	"seckill/service/servicetest"
)

// recordsOf is the database's side of hot copies.
type recordsOf func(ctx context.Context) (epoch int64, err error)

func (r recordsOf) Latest(ctx context.Context, ids []string) (map[string]int64, error) {
	epoch, err := r(ctx)
	latest := map[string]int64{}
	for _, id := range ids {
		latest[id] = epoch
	}
	return latest, err
}

// sameEpoch is a database that agrees with the hot copy.
func sameEpoch(hot *hotcopytest.Copies) recordsOf {
	return func(context.Context) (int64, error) { return hot.Sale("v1").Epoch(), nil }
}

// Two instances that look at two Redis servers find each their own copy open.
func TestEpochOfTheDatabaseDecidesOverAnOpenCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newHotShop(t, func(_ *Deps, a *AsyncDeps) {
			a.Epochs = recordsOf(func(context.Context) (int64, error) { return 2, nil }).Latest
		})
		s.refused(t, "alice", model.CodeUnavailable)
		check.Equal(t, "reservations, which nobody undoes", len(s.sale.Pending()), 1)
	})
}

func TestOrdersAreConfirmedWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]recordsOf{
		"it refuses": func(context.Context) (int64, error) { return 0, errors.New("away") },
		"it hangs":   func(ctx context.Context) (int64, error) { <-ctx.Done(); return 0, ctx.Err() },
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			asked, back := 0, false
			s := newHotShop(t, func(_ *Deps, a *AsyncDeps) {
				a.Epochs = recordsOf(func(ctx context.Context) (int64, error) {
					asked++
					if back {
						return 2, nil
					}
					return away(ctx)
				}).Latest
			})
			began := time.Now()
			s.buys(t, "alice")
			servicetest.InTime(t, "the order", began, recordTimeout+100*time.Millisecond)
			s.buys(t, "bob")
			check.Equal(t, "questions to the database", asked, 1)
			back = true
			servicetest.Pass(recordPause)
			s.refused(t, "carol", model.CodeUnavailable)
		})
	}
}
