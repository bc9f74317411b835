//part:queue

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
)

// A stream that would lose accepted orders, or refuse them, is corrected, and the log says what was and is.
func TestStreamIsCorrected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*jetstream.StreamConfig)
		log   []string
	}{
		"discards the oldest": {
			func(s *jetstream.StreamConfig) { s.Discard, s.MaxMsgs = jetstream.DiscardOld, 100 },
			[]string{"setting=discard ", "was=DiscardOld", "is=DiscardNew"},
		},
		"forgets by age": {func(s *jetstream.StreamConfig) { s.MaxAge = time.Hour }, []string{"setting=max_age", "was=1h0m0s", "is=0s"}},
		"keeps one of each subject": {
			func(s *jetstream.StreamConfig) { s.MaxMsgsPerSubject, s.Discard = 1, jetstream.DiscardOld },
			[]string{"setting=max_msgs_per_subject", "was=1", "is=-1"},
		},
		"long memory of ids": {func(s *jetstream.StreamConfig) { s.Duplicates = time.Hour }, []string{"setting=duplicate_window", "was=1h0m0s"}},
		"never acknowledges": {func(s *jetstream.StreamConfig) { s.NoAck = true }, []string{"setting=no_ack", "was=true", "is=false"}},
		"small messages":     {func(s *jetstream.StreamConfig) { s.MaxMsgSize = 100 }, []string{"setting=max_msg_size", "was=100"}},
		"other subjects":     {func(s *jetstream.StreamConfig) { s.Subjects = []string{"stream.x"} }, []string{"setting=subjects", "[stream.x]"}},
		"roll-ups":           {func(s *jetstream.StreamConfig) { s.AllowRollup = true }, []string{"setting=allow_rollup_hdrs"}},
		"direct reads":       {func(s *jetstream.StreamConfig) { s.AllowDirect = true }, []string{"setting=allow_direct"}},
		"copies elsewhere":   {func(s *jetstream.StreamConfig) { s.RePublish = &jetstream.RePublish{Destination: "stream.y.>"} }, []string{"setting=republish"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := bare(t)
			for stream, retention := range map[string]jetstream.RetentionPolicy{f.orders: jetstream.WorkQueuePolicy, f.dead: jetstream.LimitsPolicy} {
				config := jetstream.StreamConfig{
					Name: stream, Subjects: []string{f.subject}, Storage: jetstream.FileStorage, Retention: retention,
					Discard: jetstream.DiscardNew,
				}
				if stream == f.dead {
					config.Subjects = []string{"seckill." + f.options.Deployment + ".dead.>"}
				}
				c.spoil(&config)
				if stream == f.dead && (name == "other subjects" || name == "copies elsewhere") {
					continue // would overlap with the other one
				}
				check.Must(t, check.ErrorOf(f.js.CreateStream(t.Context(), config)))
			}
			q := f.open(t, nil)
			check.That(t, f.log.Has(append(c.log, "level=WARN", "stream="+f.orders)...),
				"the log does not say %q:\n%s", c.log, f.log)
			for range 20 {
				check.Must(t, q.Publish(t.Context(), some("a", 1)))
			}
			waiting(t, q, 20)
			quiet := &check.Log{}
			f.open(t, func(o *queue.Options) { o.Log = quiet.Logger() })
			check.That(t, !quiet.Has("corrected"), "the next start corrects again:\n%s", quiet)
		})
	}
}

// What a server cannot change stops the start, with the name of the setting, what it is and what it must be.
func TestStreamIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*jetstream.StreamConfig)
		want  []string
	}{
		"memory":    {func(s *jetstream.StreamConfig) { s.Storage = jetstream.MemoryStorage }, []string{"storage is Memory and must be File"}},
		"retention": {func(s *jetstream.StreamConfig) { s.Retention = jetstream.LimitsPolicy }, []string{"retention is Limits and must be WorkQueue"}},
		"interest":  {func(s *jetstream.StreamConfig) { s.Retention = jetstream.InterestPolicy }, []string{"retention is Interest and must be WorkQueue"}},
		"mirror": {func(s *jetstream.StreamConfig) {
			s.Mirror, s.Subjects, s.Retention = &jetstream.StreamSource{Name: "OTHER"}, nil, jetstream.LimitsPolicy
		}, []string{"must be"}},
		"flushes later": {func(s *jetstream.StreamConfig) { s.PersistMode = jetstream.AsyncPersistMode }, []string{"persist_mode", "must be"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := bare(t)
			config := jetstream.StreamConfig{
				Name: f.orders, Subjects: []string{f.subject}, Storage: jetstream.FileStorage,
				Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
			}
			c.spoil(&config)
			check.Must(t, check.ErrorOf(f.js.CreateStream(t.Context(), config)))
			_, err := f.tryOpen(t, nil)
			check.Need(t, err != nil, "it was accepted")
			for _, want := range append(c.want, f.orders) {
				check.That(t, strings.Contains(err.Error(), want), "error %q lacks %q", err, want)
			}
		})
	}
}

// An operator may set a bound in bytes, more replicas, or compression.
func TestHarmlessSettingsAreLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	stream := check.Value(f.js.Stream(t.Context(), f.orders))(t)
	config := stream.CachedInfo().Config
	config.MaxBytes, config.Compression, config.Description = 1<<20, jetstream.S2Compression, "ours"
	check.Must(t, check.ErrorOf(f.js.UpdateStream(t.Context(), config)))
	quiet := &check.Log{}
	f.open(t, func(o *queue.Options) { o.Log = quiet.Logger() })
	stream = check.Value(f.js.Stream(t.Context(), f.orders))(t)
	if got := stream.CachedInfo().Config; got.MaxBytes != 1<<20 || got.Compression != jetstream.S2Compression ||
		quiet.Has("corrected") || !quiet.Has("bounds of its own") {
		t.Errorf("changed to %+v\n%s", got, quiet)
	}
}

func TestConsumerIsMadeAnew(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for name, c := range map[string]struct {
		spoil func(*jetstream.ConsumerConfig)
		log   []string
	}{
		"waits long":       {func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour }, []string{"setting=ack_wait", "was=1h0m0s", "is=30s"}},
		"few at a time":    {func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1 }, []string{"setting=max_ack_pending", "was=1 "}},
		"other subject":    {func(c *jetstream.ConsumerConfig) { c.FilterSubject = f.subject }, []string{"setting=filter_subject"}},
		"forgets itself":   {func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Hour }, []string{"setting=inactive_threshold"}},
		"headers only":     {func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true }, []string{"setting=headers_only"}},
		"state in memory":  {func(c *jetstream.ConsumerConfig) { c.MemoryStorage = true }, []string{"setting=mem_storage"}},
		"paused":           {func(c *jetstream.ConsumerConfig) { c.PauseUntil = new(time.Now().Add(time.Hour)) }, []string{"setting=pause_until"}},
		"pushes":           {func(c *jetstream.ConsumerConfig) { c.DeliverSubject = "push." + f.subject }, []string{"setting=deliver_subject"}},
		"small fetches":    {func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 1 }, []string{"setting=max_batch"}},
		"grows in between": {func(c *jetstream.ConsumerConfig) { c.BackOff = []time.Duration{time.Hour} }, []string{"setting=backoff"}},
	} {
		check.Must(t, f.js.DeleteConsumer(t.Context(), f.orders, "worker"))
		config := jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy}
		if c.spoil(&config); config.DeliverSubject != "" {
			check.Must(t, check.ErrorOf(f.js.CreatePushConsumer(t.Context(), f.orders, config)))
		} else {
			check.Must(t, check.ErrorOf(f.js.CreateConsumer(t.Context(), f.orders, config)))
		}
		var log check.Log
		f.open(t, func(o *queue.Options) { o.Log = log.Logger() })
		if !log.Has(append(c.log, "level=WARN")...) {
			t.Errorf("%s: the log does not say %q:\n%s", name, c.log, log.String())
		}
	}
	quiet := &check.Log{}
	f.open(t, func(o *queue.Options) { o.Log = quiet.Logger() })
	check.Equal(t, "the next start makes it anew", quiet.Has("corrected"), false)
}

func TestWhatWasGivenUpIsDelivered(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	check.Must(t, f.Publish(t.Context(), some("a", 1)))
	check.Must(t, f.js.DeleteConsumer(t.Context(), f.orders, "worker"))
	given := make(chan struct{})
	subscription := check.Value(f.js.Conn().Subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."+f.orders+".>",
		func(*nats.Msg) { close(given) }))(t)
	check.Must(t, subscription.AutoUnsubscribe(1))
	worker := check.Value(f.js.CreateConsumer(t.Context(), f.orders, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 1, AckWait: 100 * time.Millisecond,
	}))(t)
	check.Must(t, check.ErrorOf(worker.Next(jetstream.FetchMaxWait(check.Deadline))))
	// The server looks when somebody asks for more.
	go func() { _, _ = worker.Next(jetstream.FetchMaxWait(check.Deadline)) }()
	check.Receive(t, "the server gives it up", given)
	q := f.open(t, nil)
	check.That(t, f.log.Has("level=WARN", "setting=max_deliver", "was=1", "is=-1"), "log:\n%s", f.log)
	handOut(t, q).handedOut(t, 1)
}

func TestReplicasThatCannotBeKeptStopTheStart(t *testing.T) {
	t.Parallel()
	f := bare(t)
	three := func(o *queue.Options) { o.Replicas = 3 }
	_, err := f.tryOpen(t, three)
	check.That(t, err != nil && strings.Contains(err.Error(), "3 replicas") && strings.Contains(err.Error(), f.orders),
		"a new stream with three replicas on one server: %v", err)
	f.open(t, nil)
	_, err = f.tryOpen(t, three)
	check.That(t, err != nil && strings.Contains(err.Error(), "num_replicas is 1, must be 3"),
		"a stream that has one replica, where three are configured: %v", err)
}

// behindAWire is a deployment on the shared server, and a queue that is connected through a wire.
func behindAWire(t *testing.T, change func(*queue.Options)) (f *fixture, w *wire) {
	t.Helper()
	f = bare(t)
	w = newWire(t, strings.TrimPrefix(f.options.URL, "nats://"))
	f.options.URL = w.url()
	f.Queue = f.open(t, change)
	return f, w
}

// The ack is lost with its connection: the publish is repeated under its id, succeeds, and there is one message.
func TestLostAckIsOneMessage(t *testing.T) {
	t.Parallel()
	f, w := behindAWire(t, nil)
	rounds := check.Count(t, "ROUNDS", 1, 10)
	for i := range rounds {
		w.cutAt(`"seq":`) // of the ack
		check.Must(t, f.Publish(t.Context(), some(fmt.Sprintf("m%d", i), 3)))
		check.Need(t, w.cuts() == i+1, "%d acks were lost, want %d", w.cuts(), i+1)
	}
	waiting(t, f.Queue, int64(rounds))
	check.Eventually(t, "the log tells of both", func() bool {
		return f.log.Has("a publish is repeated") && f.log.Has("disconnected") && f.log.Has("connected again")
	})
}

// What was asked for while the connection was down is not sent after its caller was told that the outcome is unknown.
func TestNothingIsSentLater(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	q := onServer(t, queue.Options{URL: server.URL()}).open(t, nil)
	server.Kill()
	check.Is(t, "Publish", q.Publish(check.Expiring(t), some("a", 1)), model.ErrUnknownOutcome)
	server.Start()
	check.Must(t, q.Publish(t.Context(), some("b", 1))) // as soon as it is connected again
	waiting(t, q, 1)
}

// The server is killed while orders are published and consumed: the same Queue hands out all that was acknowledged.
func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	f := onServer(t, queue.Options{URL: server.URL()})
	q := f.open(t, func(o *queue.Options) { o.AckWait = time.Second })
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	accepted := map[string]bool{}
	var publishers sync.WaitGroup
	for p := range 4 {
		publishers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				all := some(fmt.Sprintf("p%d-%d", p, i), 3)
				err := q.Publish(t.Context(), all)
				mu.Lock()
				for _, r := range all {
					accepted[r.ID] = err == nil
				}
				mu.Unlock()
			}
		})
	}
	// Nothing is consumed meanwhile, so that much is queued at each kill.
	for range check.Count(t, "ROUNDS", 1, 10) {
		mu.Lock()
		before := len(accepted)
		mu.Unlock()
		check.Eventually(t, "orders are accepted",
			func() bool { mu.Lock(); defer mu.Unlock(); return len(accepted) > before+100 })
		server.Kill()
		server.Start()
	}
	cancel()
	publishers.Wait()
	backlog := check.Value(q.Backlog(t.Context()))(t)
	var l ledger
	consume(t, q, l.persist, queue.ConsumeOptions{})
	check.Eventually(t, "some are consumed", func() bool { return len(l.seen()) > 0 })
	server.Kill()
	server.Start()
	drained(t, q)
	seen, lost := l.seen(), 0
	for id, ok := range accepted {
		if ok && seen[id] == 0 {
			lost++
		}
	}
	check.That(t, lost == 0 && len(accepted) >= 100 && backlog.Messages >= 20,
		"of %d orders in %d messages %d were acknowledged and lost\n%s", len(accepted), backlog.Messages, lost, f.log)
}

// A full stream refuses at once and discards nothing; with room again it accepts again.
func TestFullStreamRefuses(t *testing.T) {
	t.Parallel()
	full(t, newFixture(t, func(o *queue.Options) { o.MaxBytes = 1 << 20 }).Queue)
}

func full(t *testing.T, q *queue.Queue) {
	t.Helper()
	accepted := 0
	for refused := 0; refused < 3; {
		err := q.Publish(t.Context(), some(fmt.Sprintf("m%d", accepted), 100))
		if err == nil {
			if accepted++; accepted > 200 {
				t.Fatal("2 MB were accepted where 1 MiB fits")
			}
			continue
		}
		// The refusal is the server's own word, and nothing is tried until the time is up.
		if refused++; !errors.Is(err, model.ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("refused with %v", err)
		}
	}
	check.That(t, model.CodeOf(q.Ping(t.Context())) == model.CodeUnavailable, "it is not ready after a refusal: %v",
		q.Ping(t.Context()))
	if backlog := check.Value(q.Backlog(t.Context()))(t); backlog.Messages != int64(accepted) || accepted < 20 {
		t.Errorf("%d messages were accepted, %d are there", accepted, backlog.Messages)
	}
	handOut(t, q).handedOut(t, 100*accepted)
	check.Must(t, q.Publish(t.Context(), some("room", 100)))
	check.Must(t, q.Ping(t.Context()))
}

// The consumer, or the whole stream, is deleted under a running worker.
func TestDeletedThingsAreMadeAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	var l ledger
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	check.Must(t, f.Publish(t.Context(), some("a", 5)))
	before := drained(t, f.Queue)

	check.Must(t, f.js.DeleteConsumer(t.Context(), f.orders, "worker"))
	check.Must(t, f.Publish(t.Context(), some("b", 5)))
	check.Eventually(t, "the consumer is back", func() bool { return len(l.seen()) == 10 })

	check.Must(t, f.js.DeleteStream(t.Context(), f.orders))
	check.Must(t, f.Publish(t.Context(), some("c", 5))) // repeated until the worker has put it back
	after := drained(t, f.Queue)
	l.handedOut(t, 15)
	// Else a rebuild's barrier from before would be met by newer messages.
	check.That(t, after.LastSequence > before.LastSequence+1,
		"the new stream's message has the sequence %d, the old one's had %d", after.LastSequence, before.LastSequence)
	check.Eventually(t, "the log says that all is well again", func() bool { return f.log.Has("fetched again") })
	check.That(t, f.log.Has("cannot be fetched") && f.log.Has("level=ERROR", "the stream of orders was gone"),
		"log:\n%s", f.log)
}

// The acks are lost with their connection: what they were for comes again, and the ack floor does not claim otherwise.
func TestLostAcksAreDeliveredAgain(t *testing.T) {
	t.Parallel()
	f, w := behindAWire(t, func(o *queue.Options) { o.AckWait = time.Second })
	check.Must(t, f.Publish(t.Context(), some("a", 1)))
	w.cutAt("+ACK")
	var l ledger
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	check.Eventually(t, "the ack is lost", func() bool { return w.cuts() == 1 })
	// A question on the old connection has no answer.
	check.Eventually(t, "a new connection", func() bool { return f.log.Has("connected again") })
	drained(t, f.Queue)
	times := l.seen()[some("a", 1)[0].ID]
	check.That(t, times >= 2, "it was handed out %d times", times)
}
