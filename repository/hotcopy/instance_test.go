package hotcopy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// signs signs an instance in until the function that is returned is called.
func signs(t *testing.T, list *hotcopy.Instances, self model.Instance) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		list.Sign(ctx, self, func(_ context.Context, self *model.Instance) {
			if self.Unready == "" && !self.Since.IsZero() {
				self.Unready = "redis"
			}
		})
	}()
	stop = func() { cancel(); <-left }
	t.Cleanup(stop)
	return stop
}

// Instances of one deployment see each other, those of another do not; who leaves is gone at
// once, and who has died is gone when four signs are missing.
func TestInstances(t *testing.T) {
	t.Parallel()
	client := openRedis(t, testserver.SharedRedis(t))
	of := func(deployment string) *hotcopy.Instances {
		return hotcopy.NewInstances(client, func(context.Context) (string, error) { return deployment, nil })
	}
	deployment := newID(t)
	list := of(deployment)
	self := model.Instance{ID: "1", Name: "a:8080", Role: "all", Mode: model.ModeAsync, Version: "v1"}
	signs(t, list, self)
	leave := signs(t, list, model.Instance{ID: "2", Name: "b:8080", Role: "worker", Mode: model.ModeAsync, Version: "v2"})
	names := func() (names []string) {
		for _, instance := range check.Value(list.Alive(t.Context()))(t) {
			names = append(names, instance.Name)
		}
		return names
	}
	check.Eventually(t, "both are there", func() bool { return slices.Equal(names(), []string{"a:8080", "b:8080"}) })
	found := check.Value(list.Alive(t.Context()))(t)[0]
	if !aboutNow(found.Since) || found.SeenAt.Before(found.Since.Truncate(time.Millisecond)) {
		t.Errorf("since %s, seen at %s", found.Since, found.SeenAt)
	}
	found.Since, found.SeenAt = time.Time{}, time.Time{}
	check.Equal(t, "what is told of one", found, self)
	leave()
	check.Equal(t, "instances after one has left", len(names()), 1)
	check.Eventually(t, "its next sign tells what it sees", func() bool {
		alive := check.Value(list.Alive(t.Context()))(t)
		check.Equal(t, "times that an instance is listed", len(alive), 1)
		return alive[0].Unready == "redis"
	})

	key := "seckill:v1:instances:" + deployment
	dead := redis.Z{Score: float64(time.Now().Add(-13 * time.Second).UnixMilli()), Member: `{"id":"3","name":"dead:1"}`}
	check.Must(t, client.ZAdd(t.Context(), key, dead).Err())
	if now := names(); slices.Contains(now, "dead:1") {
		t.Errorf("a dead one is alive: %q", now)
	}
	if !check.Faults { // who comes signs at once, and then all 3 s
		signs(t, list, self)
	}
	check.Eventually(t, "the next sign forgets it", func() bool {
		return errors.Is(client.ZScore(t.Context(), key, dead.Member.(string)).Err(), redis.Nil)
	})
	if ttl := client.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("the list itself is kept for %s", ttl)
	}
	check.Equal(t, "instances of another deployment", len(check.Value(of(newID(t)).Alive(t.Context()))(t)), 0)
}

// An instance that does not know its deployment yet is nowhere, and asks again.
func TestAnInstanceOfNoDeploymentYet(t *testing.T) {
	t.Parallel()
	unknown := errors.New("no schema yet")
	list := hotcopy.NewInstances(openRedis(t, testserver.SharedRedis(t)), func(context.Context) (string, error) { return "", unknown })
	signs(t, list, model.Instance{ID: "1"})()
	if _, err := list.Alive(t.Context()); !errors.Is(err, unknown) {
		t.Errorf("the list is %v", err)
	}
}

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
