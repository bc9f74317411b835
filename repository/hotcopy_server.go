package repository

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

// RedisIdentity names a Redis: its run id, of a Cluster that of the node of one
// key. UNAVAILABLE when it does not answer.
func RedisIdentity(ctx context.Context, client redis.UniversalClient) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
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

// Incarnation is another word whenever a Redis may have lost what it had: it was
// emptied, started again, or another one has taken its place. In a Cluster only one
// node tells that it was emptied.
func (h *HotCopies) Incarnation(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	nodes, err := h.nodes(ctx)
	if err != nil {
		return "", silent(err)
	}
	canary, err := h.client.Get(ctx, canaryKey).Result()
	if err == redis.Nil { //nolint:errorlint // it is never wrapped
		if canary, err = ids.New(); err != nil {
			return "", fmt.Errorf("name a canary: %w", err)
		}
		err = h.client.SetNX(ctx, canaryKey, canary, 0).Err() // who comes second sees another one next time
	}
	if err != nil {
		return "", silent(err)
	}
	return strings.Join(append(nodes, canary), " "), nil
}

// nodes names what every Redis server holds: after a demotion and a promotion a
// primary has its run id still, and data of another one.
func (h *HotCopies) nodes(ctx context.Context) ([]string, error) {
	if h.options.Identity != "" {
		return []string{h.options.Identity}, nil
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
	switch client := h.client.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, ask)
	case *redis.Client:
		err = ask(ctx, client)
	}
	slices.Sort(nodes)
	return nodes, err
}

// Quiet tells of each copy whether it is loaded in the epoch of its record and has
// nothing reserved. Otherwise nothing is known of it.
func (h *HotCopies) Quiet(ctx context.Context, records []model.EpochRecord) []bool {
	quiet := make([]bool, 0, len(records))
	for part := range slices.Chunk(records, quietCopies) {
		quiet = append(quiet, h.quiet(ctx, part)...)
	}
	return quiet
}

func (h *HotCopies) quiet(ctx context.Context, records []model.EpochRecord) []bool {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	pipe := h.client.Pipeline()
	lengths := make([]*redis.IntCmd, len(records))
	for i, record := range records {
		lengths[i] = pipe.HLen(ctx, copyPending(record.VoucherID, record.Epoch))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	quiet := make([]bool, len(records))
	for i, length := range lengths {
		quiet[i] = length.Val() == 1 // the sentinel
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
