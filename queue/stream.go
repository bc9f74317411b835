package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/budget"
	"seckill/model"
)

const (
	// workerName is the one consumer: all instances share it, so that each message is worked on by one of them.
	workerName = "worker"

	// ackWait is how long a message waits for its worker's sign of life, sent every third of it. It is short: a sale
	// without worker and hot copy stands still so long. After a longer pause orders are persisted twice, to no effect.
	ackWait = budget.Answer + budget.Look
	// maxAckPending bounds delivered, unacknowledged messages of all instances, redeliveries too: those of vouchers in
	// trouble must leave room. A voucher stops selling behind 30 s of them, 30,000 at a thousand a second, 100 B each.
	maxAckPending = 100_000
	// maxMessage in bytes: 500 orders of the longest ids are 150 KB. Base64 of more exceeds max_payload's 1 MB.
	maxMessage = 512 << 10
)

type names struct {
	orders  string // stream
	subject string // of the orders of all vouchers; below it are those of single ones
	dead    string // stream
	letters string // prefix of the dead letters' subjects
}

func namesOf(deployment string) (names, error) {
	if deployment == "" || strings.Trim(deployment, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return names{}, fmt.Errorf("open the order queue: deployment %q is not of [a-z0-9]", deployment)
	}
	upper := strings.ToUpper(deployment)
	return names{
		orders:  "SECKILL_ORDERS_" + upper,
		subject: "seckill." + deployment + ".orders",
		dead:    "SECKILL_DEAD_" + upper,
		letters: "seckill." + deployment + ".dead.",
	}, nil
}

// isolated is the subject of one voucher's isolated orders. An id may hold dots, which divide subjects, and no "~".
func (n names) isolated(voucherID string) string {
	return n.subject + "." + isolatedMark + strings.ReplaceAll(voucherID, ".", "~")
}

const isolatedMark = "="

// voucher is the voucher whose orders a subject carries; model.AnyVoucher for the subject of all.
func (n names) voucher(subject string) (voucherID string, ok bool) {
	below, ok := strings.CutPrefix(subject, n.subject)
	if !ok || below == "" {
		return model.AnyVoucher, ok
	}
	return strings.ReplaceAll(strings.TrimPrefix(below, "."+isolatedMark), "~", "."), true
}

type settings struct {
	orders, dead jetstream.StreamConfig
	worker       jetstream.ConsumerConfig
}

func settingsOf(n names, o Options) settings {
	return settings{
		orders: ordersStream(n, max(o.Replicas, 1), cmp.Or(o.MaxBytes, -1), cmp.Or(o.Duplicates, budget.Survey)),
		dead:   deadStream(n, max(o.Replicas, 1)),
		worker: workerConsumer(cmp.Or(o.AckWait, ackWait)),
	}
}

func ordersStream(n names, replicas int, maxBytes int64, window time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        n.orders,
		Description: "seckill: accepted orders on their way to the database",
		// All vouchers share one. Below it are those of vouchers in trouble.
		Subjects: []string{n.subject, n.subject + ".*"},
		// An acknowledged order is on a disk.
		Storage:  jetstream.FileStorage,
		Replicas: replicas,
		// An acknowledged message is removed: the stream is the backlog.
		Retention: jetstream.WorkQueuePolicy,
		// A full stream refuses to publish: 503. The default would discard the oldest accepted order.
		Discard: jetstream.DiscardNew,
		// No message expires: the database may be away for days.
		MaxAge: 0,
		// No number of messages is too large. The bound is in bytes: MaxBytes, or the server's max_file_store.
		MaxMsgs:           -1,
		MaxBytes:          maxBytes,
		MaxMsgsPerSubject: -1, // nor of one voucher
		MaxMsgSize:        maxMessage,
		MaxConsumers:      -1, // a work queue allows one anyway
		Duplicates:        window,
		// A replica that answers reads could lack what the leader has acknowledged.
		AllowDirect: false,
		// A header of a message must not be able to purge the stream.
		AllowRollup: false,
	}
}

// deadStream is where orders lie that could not be persisted, until an operator removes them.
func deadStream(n names, replicas int) jetstream.StreamConfig {
	dead := ordersStream(n, replicas, -1, budget.Survey) // unused: the subject recognises repeats
	dead.Name, dead.Description = n.dead, "seckill: orders that could not be persisted"
	dead.Subjects = []string{n.letters + ">"} // one for each letter, so that a repeated one is recognised
	dead.Retention = jetstream.LimitsPolicy   // read by people, removed by people
	dead.MaxMsgSize = -1                      // a letter is larger than the message it reports
	return dead
}

func workerConsumer(wait time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Name:        workerName,
		Durable:     workerName, // outlives every worker
		Description: "seckill: persists the orders",
		// Everything that is in the stream is to be persisted.
		DeliverPolicy: jetstream.DeliverAllPolicy,
		// One message that cannot be persisted yet holds up no other.
		AckPolicy: jetstream.AckExplicitPolicy,
		AckWait:   wait,
		// The database may be away for days. An order is buried by a decision, and not by its number of deliveries.
		MaxDeliver:    -1,
		MaxAckPending: maxAckPending,
		ReplayPolicy:  jetstream.ReplayInstantPolicy,
	}
}

type deviation struct {
	name     string
	is, must any
}

// String implements fmt.Stringer, for errors.
func (d deviation) String() string { return fmt.Sprintf("%s is %v, must be %v", d.name, d.is, d.must) }

// differences are settings that are not as they must be, by JSON names. Of pointers it says only if they are set.
func differences(is, must any) (found []deviation) {
	have, wanted := reflect.ValueOf(is), reflect.ValueOf(must)
	value := func(of reflect.Value) any {
		switch {
		case of.Kind() == reflect.Pointer:
			return !of.IsNil()
		case of.Kind() == reflect.Slice && (of.Len() == 0 || of.Type().Elem().Kind() == reflect.Pointer):
			return of.Len() > 0
		}
		return of.Interface()
	}
	for i := range have.NumField() {
		name, _, _ := strings.Cut(have.Type().Field(i).Tag.Get("json"), ",")
		if x, y := value(have.Field(i)), value(wanted.Field(i)); !reflect.DeepEqual(x, y) {
			found = append(found, deviation{name: name, is: x, must: y})
		}
	}
	return found
}

// fixed is a stream as it must be in what a server cannot change.
func fixed(have, wanted jetstream.StreamConfig) jetstream.StreamConfig {
	have.Storage, have.Retention = wanted.Storage, wanted.Retention
	have.Sealed, have.Mirror = false, nil
	have.PersistMode = wanted.PersistMode // "async" acknowledges before the disk has it
	return have
}

// corrected is a stream as it must be. Settings that neither lose an order nor refuse one needlessly stay as the
// operator's: max_bytes and max_msgs (they only refuse), compression, placement, description, and more replicas.
func corrected(have, wanted jetstream.StreamConfig) jetstream.StreamConfig {
	have.Subjects = wanted.Subjects
	have.Discard, have.DiscardNewPerSubject = wanted.Discard, wanted.DiscardNewPerSubject
	have.MaxAge, have.MaxMsgsPerSubject, have.MaxMsgSize = wanted.MaxAge, wanted.MaxMsgsPerSubject, wanted.MaxMsgSize
	have.Duplicates = wanted.Duplicates
	have.Replicas = max(have.Replicas, wanted.Replicas)
	have.NoAck, have.AllowDirect, have.AllowRollup = false, wanted.AllowDirect, wanted.AllowRollup
	have.Sources, have.SubjectTransform, have.RePublish = nil, nil, nil
	return have
}

// correctedWorker is the consumer as it must be. What changes nothing for the orders stays as the operator made it.
func correctedWorker(have, wanted jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	wanted.Description, wanted.Metadata, wanted.SampleFrequency = have.Description, have.Metadata, have.SampleFrequency
	wanted.OptStartSeq, wanted.OptStartTime, wanted.MaxWaiting = have.OptStartSeq, have.OptStartTime, have.MaxWaiting
	wanted.PinnedTTL, wanted.PriorityGroups, wanted.DeliverGroup = have.PinnedTTL, have.PriorityGroups,
		have.DeliverGroup
	return wanted
}

// prepare makes streams and consumer as wanted. It reports whether the stream was created, also on failure.
func (q *Queue) prepare(ctx context.Context) (created bool, err error) {
	if _, created, err = q.prepareStream(ctx, q.wanted.orders); err == nil {
		_, _, err = q.prepareStream(ctx, q.wanted.dead)
	}
	if err == nil {
		err = q.prepareWorker(ctx)
	}
	return created, err
}

// prepareStream creates a missing stream, and corrects a deviating one. The orders' sequence begins with the
// microseconds since 1970: messages of a lost stream's successor have greater numbers than its own, and a rebuild tells
// by the number which messages came before its barrier.
func (q *Queue) prepareStream(
	ctx context.Context, wanted jetstream.StreamConfig,
) (stream jetstream.Stream, created bool, err error) {
	if stream, err = q.js.Stream(ctx, wanted.Name); errors.Is(err, jetstream.ErrStreamNotFound) {
		created = true
		first := wanted
		if wanted.Name == q.names.orders {
			first.FirstSeq = uint64(max(1, time.Now().UnixMicro()))
		}
		stream, err = q.js.CreateStream(ctx, first)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another instance was faster
			stream, err = q.js.Stream(ctx, wanted.Name)
		} else if err == nil {
			q.log.InfoContext(ctx, "a stream of the order queue was created",
				slog.String("stream", wanted.Name), slog.Int("replicas", wanted.Replicas))
		}
		if err != nil {
			return nil, created, fmt.Errorf("create stream %s with %d replicas: %w", wanted.Name, wanted.Replicas, err)
		}
	}
	if err == nil {
		err = q.correctStream(ctx, stream.CachedInfo().Config, wanted)
	}
	if err != nil {
		return nil, created, fmt.Errorf("prepare the stream %s: %w", wanted.Name, err)
	}
	return stream, created, nil
}

// correctStream changes the settings that are not as wanted, and logs each.
func (q *Queue) correctStream(ctx context.Context, have, wanted jetstream.StreamConfig) error {
	if have.MaxMsgs > 0 || have.MaxBytes > 0 && have.MaxBytes != wanted.MaxBytes {
		q.log.WarnContext(ctx,
			"a stream of the order queue has bounds of its own, beyond which it refuses; they were left as they are",
			slog.String("stream", wanted.Name), slog.Int64("max_msgs", have.MaxMsgs),
			slog.Int64("max_bytes", have.MaxBytes))
	}
	if found := differences(have, fixed(have, wanted)); len(found) > 0 {
		d := found[0]
		return unfit{fmt.Errorf("its %s is %v and must be %v; a server cannot change that: "+
			"let its messages be consumed, delete it, and start again", d.name, d.is, d.must)}
	}
	next := corrected(have, wanted)
	found := differences(have, next)
	if len(found) == 0 {
		return nil
	}
	if _, err := q.js.UpdateStream(ctx, next); err != nil {
		return fmt.Errorf("it is not as it must be (%v), and the server refuses to correct it: %w", found, err)
	}
	for _, d := range found {
		q.log.WarnContext(ctx, "a stream of the order queue was not as it must be, and was corrected",
			slog.String("stream", wanted.Name), slog.String("setting", d.name), slog.Any("was", d.is), slog.Any("is", d.must))
	}
	return nil
}

// prepareWorker creates the consumer. A deviating one is deleted and made again: the stream still has unacknowledged
// messages, and an update would never deliver those that a limit of deliveries gave up.
func (q *Queue) prepareWorker(ctx context.Context) error {
	var found []deviation
	worker, err := q.js.Consumer(ctx, q.names.orders, workerName)
	if err == nil {
		have := worker.CachedInfo().Config
		if found = differences(have, correctedWorker(have, q.wanted.worker)); len(found) == 0 {
			return nil
		}
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		found, err = []deviation{{name: "deliver_subject", is: "set", must: "empty"}}, nil
	}
	if err == nil {
		for _, d := range found {
			q.log.WarnContext(ctx, "the consumer of the order queue was not as it must be, and is made anew",
				slog.String("stream", q.names.orders), slog.String("setting", d.name), slog.Any("was", d.is), slog.Any("is", d.must))
		}
		err = q.js.DeleteConsumer(ctx, q.names.orders, workerName)
	}
	if err == nil || errors.Is(err, jetstream.ErrConsumerNotFound) {
		_, err = q.js.CreateConsumer(ctx, q.names.orders, q.wanted.worker)
	}
	if err != nil {
		return fmt.Errorf("prepare the consumer %s of %s: %w", workerName, q.names.orders, err)
	}
	q.log.InfoContext(ctx, "the consumer of the order queue was created", slog.String("stream", q.names.orders))
	return nil
}

// startAlone removes consumed messages left by a full disk, then the consumer: a dead process's come at once.
func (q *Queue) startAlone(ctx context.Context) error {
	floor, _, stream, err := q.consumed(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // prepare creates it
	}
	if err != nil {
		return fmt.Errorf("look what was consumed: %w", err)
	}
	if state := stream.CachedInfo().State; state.Msgs > 0 && floor >= state.FirstSeq {
		if err := stream.Purge(ctx, jetstream.WithPurgeSequence(floor+1)); err != nil {
			return fmt.Errorf("remove what was consumed: %w", err)
		}
		q.log.InfoContext(ctx, "consumed messages that were still in the stream were removed",
			slog.String("stream", q.names.orders), slog.Uint64("first", state.FirstSeq),
			slog.Uint64("ack_floor", floor))
	}
	if err := stream.DeleteConsumer(ctx, workerName); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("delete the consumer %s: %w", workerName, err)
	}
	return nil
}
