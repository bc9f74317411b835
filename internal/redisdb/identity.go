package redisdb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/model"
)

const (
	// CanaryKey is lost with whatever else a Redis forgets. Its value is another one whenever it was made anew.
	CanaryKey = "seckill:v1:canary"
	// callTimeout bounds one question, which takes well under a millisecond: it is for a Redis
	// that is stopped or starting.
	callTimeout = 3 * budget.Look
)

// Identity names a Redis: its run id, of a Cluster that of the node of one key. UNAVAILABLE when it does not answer.
func Identity(ctx context.Context, client redis.UniversalClient) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var node redis.Cmdable = client
	if cluster, ok := client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, CanaryKey)
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

// Incarnation is another word whenever a Redis may have lost what it had: when it was emptied or started again, or when
// another one has taken its place. Of a Cluster's nodes only the one with the canary shows that it was emptied.
// Embedded is the name of a Redis inside this process, which has no ids; empty: there is none.
func Incarnation(ctx context.Context, client redis.UniversalClient, embedded string) (string, error) {
	nodes, err := []string{embedded}, error(nil)
	if embedded == "" {
		nodes, err = Nodes(ctx, client)
	}
	if err != nil {
		return "", silent(err)
	}
	canary, err := client.Get(ctx, CanaryKey).Result()
	if err == redis.Nil { //nolint:errorlint // it is never wrapped
		if canary, err = ids.New(); err != nil {
			return "", fmt.Errorf("name a canary: %w", err)
		}
		err = client.SetNX(ctx, CanaryKey, canary, 0).Err() // the slower of two instances sees the other one's next time
	}
	if err != nil {
		return "", silent(err)
	}
	return strings.Join(append(nodes, canary), " "), nil
}

// Nodes names every Redis server and its data by two ids: a primary that was
// demoted and promoted again has its old run id, and the data of another server.
func Nodes(ctx context.Context, client redis.UniversalClient) ([]string, error) {
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
	switch client := client.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, ask)
	case *redis.Client:
		err = ask(ctx, client)
	}
	slices.Sort(nodes)
	return nodes, err
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
