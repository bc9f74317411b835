package hotcopy_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// What the instances of one deployment count is there for each of them, by voucher, and of no other deployment.
func TestTalliesAreShared(t *testing.T) {
	t.Parallel()
	client := openRedis(t, testserver.SharedRedis(t))
	of := func(deployment, instance string) *hotcopy.Tallies {
		return hotcopy.NewTallies(client, func(context.Context) (string, error) { return deployment, nil }, instance)
	}
	deployment := newID(t)
	tally := model.Tally{At: time.Now().UTC().Truncate(time.Millisecond), Placed: map[string]uint64{"OK": 3}, Took: []uint64{1, 2}}
	check.Must(t, of(deployment, "a").Publish(t.Context(), map[string]model.Tally{"v1": tally, "v2": tally}))
	check.Must(t, of(deployment, "b").Publish(t.Context(), map[string]model.Tally{"v1": {At: tally.At}}))
	found := check.Value(of(deployment, "c").Read(t.Context(), "v1"))(t)
	check.Equal(t, "instances", fmt.Sprint(slices.Sorted(maps.Keys(found))), "[a b]")
	check.Equal(t, "the tally of a", fmt.Sprint(found["a"]), fmt.Sprint(tally))
	check.Equal(t, "instances of another deployment", len(check.Value(of(newID(t), "a").Read(t.Context(), "v1"))(t)), 0)
}
