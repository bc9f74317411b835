package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/workshop/check"
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
					Name: stream, Subjects: []string{f.subject}, Storage: jetstream.FileStorage, Retention: retention, Discard: jetstream.DiscardNew,
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
			if !f.log.Has(append(c.log, "level=WARN", "stream="+f.orders)...) {
				t.Errorf("the log does not say %q:\n%s", c.log, f.log)
			}
			for range 20 {
				check.Must(t, q.Publish(t.Context(), some("a", 1)))
			}
			waiting(t, q, 20)
			quiet := &check.Log{}
			f.open(t, func(o *queue.Options) { o.Log = quiet.Logger() })
			if quiet.Has("corrected") {
				t.Errorf("the next start corrects again:\n%s", quiet)
			}
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
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range append(c.want, f.orders) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
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
	if got := stream.CachedInfo().Config; got.MaxBytes != 1<<20 || got.Compression != jetstream.S2Compression || quiet.Has("corrected") || !quiet.Has("bounds of its own") {
		t.Errorf("changed to %+v\n%s", got, quiet)
	}
}

// A consumer that is not as it must be is made anew.
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
		"pushes":           {func(c *jetstream.ConsumerConfig) { c.DeliverSubject = "push." + f.subject }, []string{"pushed"}},
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
	check.Equal(t, "the next start makes it anew", quiet.Has("made anew"), false)
}

// What a consumer has given up is delivered by the one that replaces it.
func TestWhatWasGivenUpIsDelivered(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	check.Must(t, f.Publish(t.Context(), some("a", 1)))
	check.Must(t, f.js.DeleteConsumer(t.Context(), f.orders, "worker"))
	given := make(chan struct{})
	subscription := check.Value(f.js.Conn().Subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."+f.orders+".>", func(*nats.Msg) { close(given) }))(t)
	check.Must(t, subscription.AutoUnsubscribe(1))
	worker := check.Value(f.js.CreateConsumer(t.Context(), f.orders, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 1, AckWait: 100 * time.Millisecond,
	}))(t)
	check.Must(t, check.ErrorOf(worker.Next(jetstream.FetchMaxWait(check.Deadline))))
	go func() { _, _ = worker.Next(jetstream.FetchMaxWait(check.Deadline)) }() // the server looks when somebody asks for more
	check.Receive(t, "the server gives it up", given)
	q := f.open(t, nil)
	if !f.log.Has("level=WARN", "setting=max_deliver", "was=1", "is=-1") {
		t.Errorf("log:\n%s", f.log)
	}
	handOut(t, q).handedOut(t, 1)
}

func TestReplicasThatCannotBeKeptStopTheStart(t *testing.T) {
	t.Parallel()
	f := bare(t)
	three := func(o *queue.Options) { o.Replicas = 3 }
	_, err := f.tryOpen(t, three)
	if err == nil || !strings.Contains(err.Error(), "3 replicas") || !strings.Contains(err.Error(), f.orders) {
		t.Errorf("a new stream with three replicas on one server: %v", err)
	}
	f.open(t, nil)
	_, err = f.tryOpen(t, three)
	if err == nil || !strings.Contains(err.Error(), "num_replicas is 1, must be 3") {
		t.Errorf("a stream that has one replica, where three are configured: %v", err)
	}
}
