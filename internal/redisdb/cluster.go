package redisdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/conns"
)

// newClusterClient makes a client that learns of a failover or of a slot that has moved within moments: see follower.
func newClusterClient(options *redis.ClusterOptions) *redis.ClusterClient {
	options.DialerRetries = redisDials
	options.MaxRedirects = redisRetries // also the number of retries
	options.ClusterStateReloadInterval = budget.Look
	client := redis.NewClusterClient(options)
	client.OnNewNode(func(node *redis.Client) {
		node.AddHook(&follower{cluster: client, node: node})
	})
	return client
}

// follower has the Cluster's topology read again as soon as its node cannot be reached, does not answer, or reports
// trouble in the Cluster; the client alone reads an old one only, or when a node names another, 200 ms apart. The
// follower also ends the calls of a node that hangs once it has a successor: they would wait in vain.
type follower struct {
	cluster *redis.ClusterClient
	node    *redis.Client
	looking atomic.Bool
	open    conns.Set // connections to the node
}

func (f *follower) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		f.note(ctx, err)
		if err != nil {
			return nil, err
		}
		return f.open.Keep(conn), nil
	}
}

func (f *follower) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "cluster" {
			limited, cancel := context.WithTimeout(ctx, budget.Glance)
			defer cancel()
			return next(limited, cmd)
		}
		defer f.watch()() //nolint:contextcheck // a look is for all calls that are late
		err := next(ctx, cmd)
		f.note(ctx, err)
		return err
	}
}

func (f *follower) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer f.watch()() //nolint:contextcheck // a look is for all calls that are late
		err := next(ctx, cmds)
		f.note(ctx, err)
		for _, cmd := range cmds {
			f.note(ctx, cmd.Err())
		}
		return err
	}
}

// note reads the topology again after an error that another topology may end.
func (f *follower) note(ctx context.Context, err error) {
	_, answered := errors.AsType[redis.Error](err)
	switch {
	case err == nil || errors.Is(err, context.Canceled):
	case !answered, redis.IsClusterDownError(err), redis.IsReadOnlyError(err), redis.IsLoadingError(err),
		redis.IsMasterDownError(err):
		f.cluster.ReloadState(ctx)
	}
}

func (f *follower) watch() (answered func()) {
	over := make(chan struct{})
	late := time.AfterFunc(budget.Glance, func() {
		for {
			f.look()
			select {
			case <-over:
				return
			case <-time.After(budget.Glance):
			}
		}
	})
	return func() {
		late.Stop()
		close(over)
	}
}

// look ends the connections to a node that the Cluster calls no primary (a slow one still is): of late calls, one asks.
func (f *follower) look() {
	if !f.looking.CompareAndSwap(false, true) {
		return
	}
	defer f.looking.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var primary atomic.Bool
	err := f.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		if node == f.node {
			primary.Store(true)
		}
		return nil
	})
	if err == nil && !primary.Load() {
		f.open.Cut()
	}
}

// IsCluster reports whether keys lie on different servers.
func IsCluster(client redis.UniversalClient) bool {
	_, ok := client.(*redis.ClusterClient)
	return ok
}

// NodeOf names the server of a key, and asks none. Empty: there is only one, or it is not known.
func NodeOf(client redis.UniversalClient, key string) string {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), budget.Glance)
	defer cancel()
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return ""
	}
	return node.Options().Addr
}

const everySpot = 100_000 // names tried for each primary of a Cluster: a single slot is missed once in 400 times

// Spots are numbers whose names give keys on different primaries, one for each that holds slots; or just one.
func Spots(ctx context.Context, client redis.UniversalClient, name func(n int) string) ([]int, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return []int{0}, nil
	}
	var mu sync.Mutex
	missing := map[*redis.Client]bool{}
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		missing[node] = true
		return nil
	})
	var spots []int
	for n := 0; err == nil && len(missing) > 0 && n < everySpot; n++ {
		var node *redis.Client
		if node, err = cluster.MasterForKey(ctx, name(n)); missing[node] {
			delete(missing, node)
			spots = append(spots, n)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("ask the Cluster for its nodes: %w", err)
	}
	return spots, nil
}
