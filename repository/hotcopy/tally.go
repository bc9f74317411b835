package hotcopy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/model"
)

const (
	// tallyKey begins the names of the hashes of tallies, one of each voucher of a deployment: by instance.
	tallyKey = "seckill:v1:tally:"
	// tallyLasts is how long a tally stays that no instance writes any more: what people see is of the last seconds.
	tallyLasts = 10 * time.Minute
	// tallyTimeout bounds a call: the next one follows.
	tallyTimeout = time.Second
)

// Tallies shares what the instances of a deployment count, so that one can tell the sum.
type Tallies struct {
	client     redis.UniversalClient
	deployment func(ctx context.Context) (string, error)
	instance   string
}

// NewTallies shares those of an instance.
func NewTallies(client redis.UniversalClient, deployment func(ctx context.Context) (string, error), instance string) *Tallies {
	return &Tallies{client: client, deployment: deployment, instance: instance}
}

// Publish writes this instance's tallies, by voucher.
func (t *Tallies) Publish(ctx context.Context, tallies map[string]model.Tally) error {
	ctx, cancel := context.WithTimeout(ctx, tallyTimeout)
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
		pipe.PExpire(ctx, key, tallyLasts)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("publish %d tallies: %w", len(tallies), err)
	}
	return nil
}

// Read is what each instance has counted for a voucher, by instance. One of a later version that cannot be read is left out.
func (t *Tallies) Read(ctx context.Context, voucherID string) (map[string]model.Tally, error) {
	ctx, cancel := context.WithTimeout(ctx, tallyTimeout)
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
