package hotcopy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"seckill/internal/ids"
	"seckill/model"
)

const (
	// canaryKey is lost with whatever else a Redis forgets. Its value is another
	// one whenever it was made anew.
	canaryKey = "seckill:v1:canary"
	// quietCopies are asked for in one pipeline.
	quietCopies = 1000
)

// Identity names a Redis: its run id, of a Cluster that of the node of one
// key. UNAVAILABLE when it does not answer.
func Identity(ctx context.Context, client redis.UniversalClient) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var node redis.Cmdable = client
	if cluster, ok := client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, canaryKey)
		if err != nil {
			return "", silent(err)
		}
		node = master
	}
	info, err := node.Info(ctx, "server").Result()
	if err != nil {
		return "", silent(err)
	}
	return infoField(info, "run_id"), nil
}

// Incarnation is another word whenever a Redis may have lost what it had: when it
// was emptied or started again, or when another one has taken its place. Of a
// Cluster's nodes only the one with the canary shows that it was emptied.
func (s *Store) Incarnation(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+s.options.Slack)
	defer cancel()
	nodes, err := s.nodes(ctx)
	if err != nil {
		return "", silent(err)
	}
	canary, err := s.client.Get(ctx, canaryKey).Result()
	if err == redis.Nil { //nolint:errorlint // it is never wrapped
		if canary, err = ids.New(); err != nil {
			return "", fmt.Errorf("name a canary: %w", err)
		}
		err = s.client.SetNX(ctx, canaryKey, canary, 0).Err() // the slower of two instances sees the other one's next time
	}
	if err != nil {
		return "", silent(err)
	}
	return strings.Join(append(nodes, canary), " "), nil
}

// nodes names every Redis server and its data by two ids: a primary that was
// demoted and promoted again has its old run id, and the data of another server.
func (s *Store) nodes(ctx context.Context) ([]string, error) {
	if s.options.Identity != "" {
		return []string{s.options.Identity}, nil
	}
	var mu sync.Mutex
	var nodes []string
	ask := func(ctx context.Context, node *redis.Client) error {
		pipe := node.Pipeline()
		server, replication := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")
		_, err := pipe.Exec(ctx)
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, infoField(server.Val(), "run_id")+" "+infoField(replication.Val(), "master_replid"))
		return err
	}
	var err error
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, ask)
	case *redis.Client:
		err = ask(ctx, client)
	}
	slices.Sort(nodes)
	return nodes, err
}

// Quiet tells of each copy whether it is loaded in the epoch of its record, has nothing
// reserved, and knows as many buyers as units are taken. False says nothing: Redis may not have
// answered.
func (s *Store) Quiet(ctx context.Context, records []model.EpochRecord) []bool {
	quiet := make([]bool, 0, len(records))
	for some := range slices.Chunk(records, quietCopies) {
		quiet = append(quiet, s.quiet(ctx, some)...)
	}
	return quiet
}

func (s *Store) quiet(ctx context.Context, records []model.EpochRecord) []bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+s.options.Slack)
	defer cancel()
	pipe := s.client.Pipeline()
	pending, due, buyers := make([]*redis.IntCmd, len(records)), make([]*redis.IntCmd, len(records)), make([]*redis.IntCmd, len(records))
	for i, r := range records {
		pending[i] = pipe.HLen(ctx, pendingKey(r.VoucherID, r.Epoch))
		due[i] = pipe.ZCard(ctx, dueKey(r.VoucherID, r.Epoch))
		buyers[i] = pipe.HLen(ctx, buyersKey(r.VoucherID, r.Epoch))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	quiet := make([]bool, len(records))
	for i, r := range records { // each key has a sentinel
		quiet[i] = pending[i].Val() == 1 && due[i].Val() == 1 && buyers[i].Val() == r.Taken+1
	}
	return quiet
}

// infoField is the value of one line of INFO.
func infoField(info, name string) string {
	_, rest, _ := strings.Cut(info, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

func silent(err error) error {
	return model.Unavailable("Redis does not answer.", fmt.Errorf("ask Redis who it is: %w", err))
}
