package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/queue"
)

// replicated waits until each of the three has what the queue keeps. A server that is killed before, with an empty log, has
// no vote when it comes back, because it may have lost what it had (nats-server, raft.go, emptyVotes): two of three elect
// no leader then.
func replicated(t *testing.T, server *testserver.Server) {
	t.Helper()
	js := plain(t, nats.Name("beside"), server.URL())
	check.Eventually(t, "all replicas have it", func() bool {
		stored, err1 := js.Stream(second(t), orders)
		buried, err2 := js.Stream(second(t), dead)
		worker, err3 := js.Consumer(second(t), orders, "worker")
		if err1 != nil || err2 != nil || err3 != nil {
			return false
		}
		replicas := slices.Concat(stored.CachedInfo().Cluster.Replicas, buried.CachedInfo().Cluster.Replicas, worker.CachedInfo().Cluster.Replicas)
		return !slices.ContainsFunc(replicas, func(one *jetstream.PeerInfo) bool { return !one.Current || one.Active == 0 })
	})
}

// TestReadyWithALeader: the queue is ready again once a stream has elected a leader, and is not while a majority of
// its servers is away, although one still answers.
func TestReadyWithALeader(t *testing.T) {
	t.Parallel()
	servers := testserver.NATSCluster(t)
	var q *queue.Queue
	check.Eventually(t, "the cluster has a leader, and the stream", func() (opened bool) {
		var err error
		q, err = openQueue(t, queue.Options{URL: servers.URL(), Deployment: deployment, Replicas: 3, Log: slog.New(slog.DiscardHandler)})
		return err == nil
	})
	ready := func() bool { return q.Ping(second(t)) == nil }
	check.Eventually(t, "it is ready", ready)
	must(t, q.Publish(t.Context(), some("a", 1)))
	replicated(t, servers[2])

	servers[0].Kill()
	check.Eventually(t, "two of three are ready", ready)
	must(t, q.Publish(t.Context(), some("b", 1)))
	servers[1].Kill()
	if err := q.Publish(second(t), some("c", 1)); err == nil {
		t.Error("one of three has stored an order")
	}
	<-time.After(4 * time.Second) // a leader believes in a replica for 3 s, and steps down after 10
	for range 3 {
		if err := q.Ping(second(t)); model.CodeOf(err) != model.CodeUnavailable {
			t.Errorf("one of three is ready: %v", err)
		}
	}
	servers[0].Start()
	check.Eventually(t, "two of three are ready again", ready)
	check.Eventually(t, "what was stored is there", func() bool {
		backlog, err := q.Backlog(t.Context())
		return err == nil && (backlog.Messages == 2 || backlog.Messages == 3) // it is unknown what became of the third
	})
}

// TestOpenDuringAnElection: a server whose cluster has no leader leaves what it is asked unanswered. Who opens the queue
// then asks again, and finds the leader that was elected in the meantime.
func TestOpenDuringAnElection(t *testing.T) {
	t.Parallel()
	servers := testserver.NATSCluster(t)
	options := queue.Options{URL: servers[2].URL(), Deployment: deployment, Replicas: 3, Log: slog.New(slog.DiscardHandler)}
	check.Eventually(t, "the cluster has a leader, and the stream", func() bool {
		return check.ErrorOf(openQueue(t, options)) == nil
	})
	replicated(t, servers[2])
	servers[0].Kill()
	servers[1].Kill()
	opened := make(chan error)
	go func() { opened <- check.ErrorOf(openQueue(t, options)) }()
	servers[0].Start()
	if err := <-opened; err != nil {
		t.Errorf("open while a leader is elected: %v", err)
	}
}

// TestAServerThatHangsIsLeft: a server that leads nothing hangs. Who is connected to it goes to another one within the time
// of an election. A server that is silent for a second is not left, and what was published meanwhile is stored once.
func TestAServerThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	servers := testserver.NATSCluster(t)
	open := func(url string) (*queue.Queue, *check.Log) {
		log := &check.Log{}
		var q *queue.Queue
		check.Eventually(t, "the queue opens", func() (opened bool) {
			var err error
			q, err = openQueue(t, queue.Options{URL: url, Deployment: deployment, Replicas: 3, Log: log.Logger()})
			return err == nil
		})
		return q, log
	}
	open(servers.URL())
	leader := -1
	check.Eventually(t, "the stream has a leader", func() bool { leader = servers.Leader(t, orders); return leader >= 0 })
	follower := servers[(leader+1)%len(servers)]
	var q *queue.Queue
	var before int64
	testserver.Undisturbed(t, 500*time.Millisecond, func() error { // the server is left for 2 s of silence
		var log *check.Log
		q, log = open(follower.URL()) // the others are made known by it
		check.Eventually(t, "it stores", func() bool { return q.Publish(second(t), some("a", 1)) == nil })
		before = check.Value(q.Backlog(t.Context()))(t).Messages

		follower.Pause()
		stored := make(chan error, 1)
		go func() { stored <- q.Publish(t.Context(), some("slow", 1)) }()
		<-time.After(time.Second) // that is how slow it is
		follower.Resume()
		must(t, <-stored)
		waiting(t, q, before+1)
		if log.Has("disconnected") {
			return fmt.Errorf("a server that was slow was left\n%s", log)
		}
		return nil
	})

	follower.Pause()
	hung := time.Now()
	must(t, q.Publish(t.Context(), some("hung", 1))) // it is repeated for publishBudget
	if took := time.Since(hung); took > 9*time.Second {
		t.Errorf("it took %v to leave a server that hangs", took)
	}
	var backlog model.Backlog
	check.Eventually(t, "who is asked has a leader", func() (answered bool) { // the one that hangs may have led the worker's consumer
		var err error
		backlog, err = q.Backlog(t.Context())
		return err == nil
	})
	check.Equal(t, "messages that wait", backlog.Messages, before+2)
}

// second is what a readiness check has.
func second(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}
