package hotcopy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	// instanceKey begins the names of a deployment's set of instances, by when they were last seen (Redis' ms).
	instanceKey = "seckill:v1:instances:"
	// signEvery is between two signs of life, four calls each.
	signEvery = 3 * budget.Look
	// signLost is the age from which an instance counts as gone: four signs are missing.
	signLost     = 4 * signEvery
	maxInstances = 500
)

// Instances tells which instances of a deployment live. Each signs again and again, also after Redis lost it.
type Instances struct {
	client     redis.UniversalClient
	deployment func(ctx context.Context) (string, error)
}

// NewInstances tells the instances of a deployment, whose name may not be known at the start.
func NewInstances(client redis.UniversalClient, deployment func(ctx context.Context) (string, error)) *Instances {
	return &Instances{client: client, deployment: deployment}
}

// Sign signs an instance in until ctx ends, and then out. Before each sign, look tells what the instance sees.
func (i *Instances) Sign(
	ctx context.Context, self model.Instance, look func(ctx context.Context, self *model.Instance),
) {
	sign := func() { self = i.sign(ctx, self, look) }
	sign()
	poll.Every(ctx, signEvery, sign)
	i.leave(context.WithoutCancel(ctx), self)
}

// sign gives one sign of life, an instance's first too. Errors are Redis', of which the readiness check tells.
func (i *Instances) sign(
	ctx context.Context, was model.Instance, look func(ctx context.Context, self *model.Instance),
) model.Instance {
	ctx, cancel := context.WithTimeout(ctx, budget.Call)
	defer cancel()
	self := was
	look(ctx, &self)
	key, now, err := i.now(ctx)
	if err != nil {
		return was
	}
	if self.Since.IsZero() {
		self.Since = now.UTC()
	}
	pipe := i.client.TxPipeline() // nobody sees an instance twice, or not at all
	if was != self {
		pipe.ZRem(ctx, key, member(was))
	}
	pipe.ZAdd(ctx, key, redis.Z{Score: float64(now.UnixMilli()), Member: member(self)})
	pipe.ZRemRangeByScore(ctx, key, "-inf", before(now))
	pipe.PExpire(ctx, key, signLost)
	if _, err := pipe.Exec(ctx); err != nil {
		return was // the next sign follows
	}
	return self
}

func (i *Instances) leave(ctx context.Context, self model.Instance) {
	ctx, cancel := context.WithTimeout(ctx, budget.Glance)
	defer cancel()
	if deployment, err := i.deployment(ctx); err == nil {
		i.client.ZRem(ctx, instanceKey+deployment, member(self))
	}
}

// Alive lists, by name, instances with a recent sign of life, except unreadable ones of a later version.
func (i *Instances) Alive(ctx context.Context) ([]model.Instance, error) {
	key, now, err := i.now(ctx)
	if err != nil {
		return nil, err
	}
	alive := &redis.ZRangeBy{Min: before(now), Max: "+inf", Count: maxInstances}
	found, err := i.client.ZRangeByScoreWithScores(ctx, key, alive).Result()
	if err != nil {
		return nil, fmt.Errorf("list the instances: %w", err)
	}
	list := make([]model.Instance, 0, len(found))
	for _, z := range found {
		text, _ := z.Member.(string)
		var instance model.Instance
		if json.Unmarshal([]byte(text), &instance) == nil {
			instance.SeenAt = time.UnixMilli(int64(z.Score)).UTC()
			list = append(list, instance)
		}
	}
	slices.SortFunc(list, func(a, b model.Instance) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Since.Compare(b.Since))
	})
	return list, nil
}

// now is the key of the deployment's instances, and Redis' clock.
func (i *Instances) now(ctx context.Context) (key string, now time.Time, err error) {
	deployment, err := i.deployment(ctx)
	if err != nil {
		return "", now, err
	}
	if now, err = i.client.Time(ctx).Result(); err != nil {
		return "", now, fmt.Errorf("read Redis' clock: %w", err)
	}
	return instanceKey + deployment, now, nil
}

func member(i model.Instance) []byte {
	text, _ := json.Marshal(i) // texts and times can always be written
	return text
}

// before is the score of the instances that count as gone just now.
func before(now time.Time) string { return strconv.FormatInt(now.Add(-signLost).UnixMilli(), 10) }

// tallyKey begins the names of the hashes of tallies, one of each voucher of a deployment: by instance.
const tallyKey = "seckill:v1:tally:"

// Tallies shares what the instances of a deployment count, so that one can tell the sum.
type Tallies struct {
	client     redis.UniversalClient
	deployment func(ctx context.Context) (string, error)
	instance   string
}

// NewTallies shares those of an instance.
func NewTallies(
	client redis.UniversalClient, deployment func(ctx context.Context) (string, error), instance string,
) *Tallies {
	return &Tallies{client: client, deployment: deployment, instance: instance}
}

// Publish writes this instance's tallies, by voucher.
func (t *Tallies) Publish(ctx context.Context, tallies map[string]model.Tally) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Look)
	defer cancel()
	deployment, err := t.deployment(ctx)
	if err != nil {
		return err
	}
	pipe := t.client.Pipeline()
	for voucherID, tally := range tallies {
		text, err := json.Marshal(tally)
		if err != nil {
			return fmt.Errorf("write the tally of voucher %s: %w", voucherID, err)
		}
		key := tallyKey + deployment + ":" + voucherID
		pipe.HSet(ctx, key, t.instance, text)
		pipe.PExpire(ctx, key, budget.Late)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("publish %d tallies: %w", len(tallies), err)
	}
	return nil
}

// Read is what each instance has counted for a voucher. An unreadable one of a later version is left out.
func (t *Tallies) Read(ctx context.Context, voucherID string) (map[string]model.Tally, error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Look)
	defer cancel()
	deployment, err := t.deployment(ctx)
	if err != nil {
		return nil, err
	}
	found, err := t.client.HGetAll(ctx, tallyKey+deployment+":"+voucherID).Result()
	if err != nil {
		return nil, fmt.Errorf("read the tallies of voucher %s: %w", voucherID, err)
	}
	tallies := make(map[string]model.Tally, len(found))
	for instance, text := range found {
		var tally model.Tally
		if json.Unmarshal([]byte(text), &tally) == nil {
			tallies[instance] = tally
		}
	}
	return tallies, nil
}
