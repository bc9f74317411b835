package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"seckill/internal/poll"
)

// promoted: the line between a primary and its replica fails, A locks, and the replica is made the primary, which B
// asks. The old one is gone, or, in a split brain, lives and takes writes.
func promoted(gone bool) attack {
	name := "split brain"
	if gone {
		name = "replica promoted"
	}
	return attack{name: name, stock: 1, lapses: true, run: func(a *arena) {
		var undo cleanup
		err := try(func() {
			old := undo.redis(a.ctx, "")
			replica := undo.redis(a.ctx, old.addr)
			undo.redis(a.ctx, replica.addr)                                                              // stands behind the new primary
			must("cut the line to the replica", replica.client.ReplicaOf(a.ctx, "127.0.0.1", "1").Err()) // nobody is there
			others := a.setup.Site.Quorum[1:]
			at := func(r redisServer) func(*setup) {
				return func(s *setup) {
					s.Site.Redis = "redis://" + r.addr
					s.Site.Quorum = append([]string{s.Site.Redis}, others...)
				}
			}
			first := a.stands("A", []point{pointRead}, at(old))
			if a.strategy.on == onQuorum {
				a.joined(others)
			}
			if gone {
				_ = old.cmd.Process.Kill()
			}
			must("promote the replica", replica.client.ReplicaOf(a.ctx, "NO", "ONE").Err())
			second := a.worker("B", at(replica))
			second.to(a.forbidden(), pointRead)
			a.finish(first, second)
		})
		stop(errors.Join(err, undo.run(a.ctx)))
	}}
}

// joined waits until all of those instances have the lock. A majority has it with one of them, and the promoted
// instance and the other would be a majority too: what RedLock survives is a promotion of one of more than it needs.
func (a *arena) joined(urls []string) {
	ctx, cancel := context.WithTimeout(a.ctx, certain)
	defer cancel()
	for _, url := range urls {
		client := newClient(url)
		defer client.Close()
		must("wait until each instance has the lock", poll.Until(ctx, startPoll, func() (bool, error) {
			n, err := client.Exists(ctx, a.setup.key("lock")).Result()
			return n == 1, err
		}))
	}
}

// redisServer is one of the lab's own.
type redisServer struct {
	addr string
	server
	client *redis.Client
}

// redis starts a server. Where primary is given, the server is its replica and has its data. Where another program has
// taken the free port meanwhile, redis tries another port.
func (c *cleanup) redis(ctx context.Context, primary string) (s redisServer) {
	var err error
	for range 3 {
		if err = try(func() { s = c.redisOnce(ctx, primary) }); !errors.Is(err, errServerEnded) {
			break
		}
	}
	stop(err)
	return s
}

func (c *cleanup) redisOnce(ctx context.Context, primary string) redisServer {
	program := installed("redis-server")
	if program == "" {
		stop(errors.New("redis-server is not installed"))
	}
	free := got(net.Listen("tcp", "127.0.0.1:0"))("find a port") //nolint:noctx // at once
	addr := free.Addr().String()
	_, port, _ := strings.Cut(addr, ":")
	_ = free.Close()
	want, args := "role:master", []string{
		"--dir", c.dir(), // a replica writes its first copy there
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--repl-diskless-sync-delay", "0", "--loglevel", "warning",
	}
	if _, port, replica := strings.Cut(primary, ":"); replica {
		want, args = "master_link_status:up", append(args, "--replicaof", "127.0.0.1", port)
	}
	s := redisServer{addr, c.start(program, args...), newClient("redis://" + addr)}
	c.closes(s.client)
	s.ready(ctx, func(ctx context.Context) error {
		info, err := s.client.Info(ctx).Result()
		itself := fmt.Sprintf("process_id:%d\r", s.cmd.Process.Pid) // and not one that was faster
		if err == nil && (!strings.Contains(info, want) || !strings.Contains(info, itself)) {
			err = fmt.Errorf("it is not %s yet", want)
		}
		return err
	})
	return s
}
