package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/redis/go-redis/v9"

	"seckill/internal/poll"
	"seckill/lock"
	"seckill/lock/driver"
)

// onReplicas are locks whose Redis has a replica that takes its place. They run with servers of
// the lab's own.
func onReplicas(mended bool) []strategy {
	attacks := []attack{promoted(true), promoted(false)}
	store := hashStore
	if mended {
		store = syncedStore
	}
	lost := realLock("one lock, replica promoted", onRedis, "the replica had not got the lock yet: it gives it to another one", onOne(store))
	lost.group, lost.defect, lost.cure = groupBroken, defectLost, "one lock, synced; multilock; redlock"
	all := []strategy{
		lost,
		realLock("one lock, synced", onRedis, "Synced(1): what the replica has not confirmed is not held", onOne(syncedStore)),
		realLock("multilock, promoted", onQuorum, "the other instances still know of the holder", onThree(lock.All)),
		realLock("redlock, promoted", onQuorum, "a majority still knows of the holder", onThree(lock.Majority)),
	}
	for i := range all {
		all[i].attacks, all[i].real = attacks, true
	}
	return all
}

// syncedStore waits for a replica under attack; the servers of the free run have none.
func syncedStore(s setup, c *redis.Client) driver.Store {
	n := 1
	if s.load != nil {
		n = 0
	}
	return lock.NewRedisStore(c, lock.CallTimeout(ioTimeout), lock.Synced(n))
}

// promoted: the line between a primary and its replica fails, A locks, and the replica is made the primary, which B
// asks. The old one is gone, or, in a split brain, lives and takes writes.
func promoted(gone bool) attack {
	name := "split brain"
	if gone {
		name = "replica promoted"
	}
	return attack{name: name, stock: 1, lapses: true, run: func(ctx context.Context, a *arena) (err error) {
		var undo cleanup
		defer func() { err = errors.Join(err, undo.run(ctx)) }()
		old, err := undo.redis(ctx, "")
		if err != nil {
			return err
		}
		replica, err := undo.redis(ctx, old.addr)
		if err != nil {
			return err
		}
		if _, err = undo.redis(ctx, replica.addr); err != nil { // stands behind the new primary
			return err
		}
		others := a.setup.Site.Quorum[1:]
		if err := replica.client.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil { // nobody is there
			return fmt.Errorf("cut the line to the replica: %w", err)
		}
		at := func(r redisServer) func(*setup) {
			return func(s *setup) {
				s.Site.Redis = "redis://" + r.addr
				s.Site.Quorum = append([]string{s.Site.Redis}, others...)
			}
		}
		first := a.worker(ctx, "A", at(old))
		first.to(ctx, certain, pointRead)
		if a.strategy.on == onQuorum {
			if err := a.joined(ctx, others); err != nil {
				return err
			}
		}
		if gone {
			_ = old.cmd.Process.Kill()
		}
		if err := replica.client.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
			return fmt.Errorf("promote the replica: %w", err)
		}
		second := a.worker(ctx, "B", at(replica))
		second.to(ctx, a.forbidden(absence), pointRead)
		return a.finish(ctx, first, second)
	}}
}

// joined waits until all of those instances have the lock. A majority has it with one of them, and the promoted instance and
// the other would be a majority too: what RedLock survives is a promotion of one of more than it needs.
func (a *arena) joined(ctx context.Context, urls []string) error {
	ctx, cancel := context.WithTimeout(ctx, certain)
	defer cancel()
	for _, url := range urls {
		client, err := newClient(url, nil)
		if err != nil {
			return err
		}
		defer client.Close()
		err = poll.Until(ctx, startPoll, func() (bool, error) {
			n, err := client.Exists(ctx, a.setup.key("lock")).Result()
			return n == 1, err
		})
		if err != nil {
			return fmt.Errorf("wait until each instance has the lock: %w", err)
		}
	}
	return nil
}

// redisServer is one of the lab's own.
type redisServer struct {
	addr   string
	cmd    *exec.Cmd
	client *redis.Client
}

// redis starts a server. Where primary is given, the server is its replica and has its data. Where another program has taken the
// free port meanwhile, redis tries another port.
func (c *cleanup) redis(ctx context.Context, primary string) (s redisServer, err error) {
	for range 3 {
		if s, err = c.redisOnce(ctx, primary); !errors.Is(err, errServerEnded) {
			break
		}
	}
	return s, err
}

func (c *cleanup) redisOnce(ctx context.Context, primary string) (redisServer, error) {
	program := installed("redis-server")
	if program == "" {
		return redisServer{}, errors.New("redis-server is not installed")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		return redisServer{}, fmt.Errorf("find a port: %w", err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	_, port, _ := net.SplitHostPort(addr)
	dir, err := os.MkdirTemp("", "lab-redis-") // a replica writes its first copy there
	if err != nil {
		return redisServer{}, fmt.Errorf("start redis-server: %w", err)
	}
	c.add(func(context.Context) error { return os.RemoveAll(dir) })
	args := []string{"--dir", dir, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0", "--loglevel", "warning"}
	want := "role:master"
	if primary != "" {
		host, port, _ := net.SplitHostPort(primary)
		args = append(args, "--replicaof", host, port)
		want = "master_link_status:up"
	}
	s := redisServer{addr: addr, cmd: exec.Command(program, args...)} //nolint:gosec,noctx // ended by undo
	ended, err := c.start(s.cmd)
	if err != nil {
		return s, err
	}
	if s.client, err = newClient("redis://"+addr, nil); err != nil {
		return s, err
	}
	c.add(func(context.Context) error { return s.client.Close() })
	return s, ready(ctx, "redis-server", ended, func(ctx context.Context) error {
		info, err := s.client.Info(ctx).Result()
		itself := fmt.Sprintf("process_id:%d\r", s.cmd.Process.Pid) // and not one that was faster
		if err == nil && (!strings.Contains(info, want) || !strings.Contains(info, itself)) {
			err = fmt.Errorf("it is not %s yet", want)
		}
		return err
	})
}
