//go:build faults

//part:clusters

package queue_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
)

// answer is how long a question to a cluster waits: one that has no leader never answers, and is asked again.
const answer = time.Second

func asking(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answer)
	t.Cleanup(cancel)
	return ctx
}

// onCluster is a queue of three replicas, opened through one server or all.
func onCluster(t *testing.T, url string) *fixture {
	t.Helper()
	f := onServer(t, queue.Options{URL: url, Replicas: 3})
	check.Eventually(t, "the cluster has its servers", func() (opened bool) {
		var err error
		f.Queue, err = f.tryOpen(t, nil)
		return err == nil
	})
	return f
}

// On a cluster, a stream of one replica becomes one of three when three are configured, and never the other way round.
func TestReplicasAreKept(t *testing.T) {
	t.Parallel()
	servers := testserver.NATSCluster(t)
	f := onServer(t, queue.Options{URL: servers.URL()})
	open := func(replicas int) *queue.Queue {
		return f.open(t, func(o *queue.Options) { o.Replicas = replicas })
	}
	replicas := func() int {
		return check.Value(plain(t, servers.URL()).Stream(check.Context(t), f.orders))(t).CachedInfo().Config.Replicas
	}
	check.Must(t, open(1).Publish(t.Context(), some("a", 1)))
	three := open(3)
	n := replicas()
	check.That(t, n == 3 && f.log.Has("setting=num_replicas", "was=1", "is=3"), "%d replicas\n%s", n, f.log)
	open(1)
	check.Equal(t, "replicas, behind an instance that wants one", replicas(), 3)
	// The servers take some ten seconds to agree on a leader of the three.
	check.Eventually(t, "the three accept orders",
		func() bool { return three.Publish(t.Context(), some("b", 1)) == nil })
	// More than a fetch asks for. Replicas first agree on a delivery, and the server's word on the fetch precedes it.
	const waiting = 700
	check.Volley(waiting, func(i int) {
		if err := three.Publish(t.Context(), some(fmt.Sprintf("c%d", i), 1)); err != nil {
			t.Error(err)
		}
	})
	var l ledger
	consume(t, three, l.persist, queue.ConsumeOptions{})
	check.Eventually(t, "all orders came out", func() bool { return len(l.seen()) == 2+waiting })
	check.That(t, !f.log.Has("cannot be fetched"), "a fetch ended before its messages had come\n%s", f.log)
}

// replicated waits until all three have what the queue keeps. A server killed with an empty log has no vote when it is
// back (nats-server, raft.go, emptyVotes): two of three elect no leader then.
func (f *fixture) replicated(t *testing.T, server *testserver.Server) {
	t.Helper()
	js := plain(t, server.URL())
	check.Eventually(t, "all replicas have it", func() bool {
		stored, err1 := js.Stream(asking(t), f.orders)
		buried, err2 := js.Stream(asking(t), f.dead)
		worker, err3 := js.Consumer(asking(t), f.orders, "worker")
		if err1 != nil || err2 != nil || err3 != nil {
			return false
		}
		replicas := slices.Concat(stored.CachedInfo().Cluster.Replicas, buried.CachedInfo().Cluster.Replicas,
			worker.CachedInfo().Cluster.Replicas)
		return !slices.ContainsFunc(replicas,
			func(one *jetstream.PeerInfo) bool { return !one.Current || one.Active == 0 })
	})
}

// The queue is ready once its stream has a leader, and is not while a majority is away, although one server answers.
func TestReadyWithALeader(t *testing.T) {
	t.Parallel()
	servers := testserver.NATSCluster(t)
	f := onCluster(t, servers.URL())
	ready := func() bool { return f.Ping(asking(t)) == nil }
	check.Eventually(t, "it is ready", ready)
	check.Must(t, f.Publish(t.Context(), some("a", 1)))
	f.replicated(t, servers[2])

	servers[0].Kill()
	check.Eventually(t, "two of three are ready", ready)
	check.Must(t, f.Publish(t.Context(), some("b", 1)))
	servers[1].Kill()
	if err := f.Publish(asking(t), some("c", 1)); err == nil {
		t.Error("one of three has stored an order")
	}
	// A leader believes in a replica for 3 s, and steps down after 10.
	check.Eventually(t, "one of three is not ready",
		func() bool { return model.CodeOf(f.Ping(asking(t))) == model.CodeUnavailable })
	check.Stays(t, "it is not", func() bool { return model.CodeOf(f.Ping(asking(t))) == model.CodeUnavailable })
	servers[0].Start()
	// An order without an answer counts against the queue for a while, or until another one is stored.
	check.Eventually(t, "two of three store orders again",
		func() bool { return f.Publish(asking(t), some("d", 1)) == nil })
	check.Eventually(t, "two of three are ready again", ready)
	check.Eventually(t, "what was stored is there", func() bool {
		backlog, err := f.Backlog(asking(t))
		return err == nil && backlog.Messages >= 3 // it is unknown what became of those without an answer
	})
}

// A server of no leader leaves questions unanswered. Who opens the queue asks again, until a leader is elected.
func TestOpenDuringAnElection(t *testing.T) {
	t.Parallel()
	servers := testserver.NATSCluster(t)
	f := onCluster(t, servers[2].URL())
	f.replicated(t, servers[2])
	servers[0].Kill()
	servers[1].Kill()
	opened := make(chan error, 1)
	go func() { opened <- check.ErrorOf(f.tryOpen(t, nil)) }()
	servers[0].Start()
	check.Must(t, check.Receive(t, "it is open", opened))
}

// TestAServerThatHangsIsLeft: a server that leads nothing hangs. Who is connected to it goes to another one.
func TestAServerThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	servers := testserver.NATSCluster(t)
	f := onCluster(t, servers.URL())
	leader := -1
	check.Eventually(t, "the stream has a leader",
		func() bool { leader = servers.Leader(t, f.orders); return leader >= 0 })
	follower := servers[(leader+1)%len(servers)]
	q := f.open(t, func(o *queue.Options) { o.URL, o.Slack = follower.URL(), 0 }) // the others are made known by it
	check.Eventually(t, "it stores", func() bool { return q.Publish(t.Context(), some("a", 1)) == nil })
	before := check.Value(f.Backlog(t.Context()))(t).Messages

	follower.Pause()
	check.Eventually(t, "it stores again", func() bool { return q.Publish(t.Context(), some("hung", 1)) == nil })
	// The library reports it when it has time.
	check.Eventually(t, "the log says that it was left", func() bool { return f.log.Has("disconnected") })
	var backlog model.Backlog
	// The server that hangs may have led the worker's consumer.
	check.Eventually(t, "who is asked has a leader", func() (answered bool) {
		var err error
		backlog, err = q.Backlog(asking(t))
		return err == nil
	})
	check.That(t, backlog.Messages > before, "%d messages wait, before it hung there were %d", backlog.Messages, before)
}
