package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// prepare makes the server hold the streams and the consumer as wanted. It
// reports whether the stream of orders had to be created.
func (q *Queue) prepare(ctx context.Context) (created bool, err error) {
	if created, err = q.prepareStream(ctx, q.wanted.orders); err != nil {
		return created, err
	}
	if _, err = q.prepareStream(ctx, q.wanted.dead); err != nil {
		return created, err
	}
	if err = q.prepareWorker(ctx); err != nil {
		return created, fmt.Errorf("prepare the consumer %s of %s: %w", workerName, q.names.orders, err)
	}
	return created, nil
}

// prepareStream creates a stream that is missing, and corrects one that is not
// as it must be.
func (q *Queue) prepareStream(ctx context.Context, wanted jetstream.StreamConfig) (created bool, err error) {
	stream, err := q.js.Stream(ctx, wanted.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		created = true
		stream, err = q.createStream(ctx, wanted)
	}
	if err == nil {
		err = q.correctStream(ctx, stream.CachedInfo().Config, wanted)
	}
	if err != nil {
		return created, fmt.Errorf("prepare the stream %s: %w", wanted.Name, err)
	}
	return created, nil
}

// correctStream changes what a stream has otherwise than wanted, and says so.
func (q *Queue) correctStream(ctx context.Context, have, wanted jetstream.StreamConfig) error {
	if have.MaxMsgs > 0 || have.MaxBytes > 0 && have.MaxBytes != wanted.MaxBytes {
		q.log.WarnContext(ctx, "a stream of the order queue has bounds of its own, beyond which it refuses; they were left as they are",
			slog.String("stream", wanted.Name), slog.Int64("max_msgs", have.MaxMsgs), slog.Int64("max_bytes", have.MaxBytes))
	}
	deviations, next := compareStream(have, wanted)
	for _, d := range deviations {
		if d.fixed {
			return fmt.Errorf("its %s is %v and must be %v; a server cannot change that: "+
				"let its messages be consumed, delete it, and start again", d.name, d.is, d.must)
		}
	}
	if len(deviations) == 0 {
		return nil
	}
	if _, err := q.js.UpdateStream(ctx, next); err != nil {
		return fmt.Errorf("it is not as it must be (%v), and the server refuses to correct it: %w", deviations, err)
	}
	for _, d := range deviations {
		q.log.WarnContext(ctx, "a stream of the order queue was not as it must be, and was corrected",
			slog.String("stream", wanted.Name), slog.String("setting", d.name), slog.Any("was", d.is), slog.Any("is", d.must))
	}
	return nil
}

// createStream makes a stream. That of the orders counts from the microseconds
// since 1970: should the server ever lose it, the messages of the new one still
// have greater numbers than those of the old, with which rebuilds were told
// apart what came before them and what after.
func (q *Queue) createStream(ctx context.Context, wanted jetstream.StreamConfig) (jetstream.Stream, error) {
	if wanted.Name == q.names.orders {
		wanted.FirstSeq = uint64(max(1, time.Now().UnixMicro()))
	}
	stream, err := q.js.CreateStream(ctx, wanted)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another instance was faster, maybe with another sequence
		return q.js.Stream(ctx, wanted.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("create it with %d replicas: %w", wanted.Replicas, err)
	}
	q.log.InfoContext(ctx, "a stream of the order queue was created", slog.String("stream", wanted.Name), slog.Int("replicas", wanted.Replicas))
	return stream, nil
}

// prepareWorker creates the consumer. One that is not as it must be is made
// anew: what was not acknowledged lies in the stream and is delivered again,
// also what a limit of deliveries had given up, which an update would leave
// lying there for ever.
func (q *Queue) prepareWorker(ctx context.Context) error {
	worker, err := q.js.Consumer(ctx, q.names.orders, workerName)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return q.createWorker(ctx)
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		q.log.WarnContext(ctx, "the consumer of the order queue pushed, and is made anew", slog.String("stream", q.names.orders))
	case err != nil:
		return err
	default:
		deviations := compareWorker(worker.CachedInfo().Config, q.wanted.worker)
		if len(deviations) == 0 {
			return nil
		}
		for _, d := range deviations {
			q.log.WarnContext(ctx, "the consumer of the order queue was not as it must be, and is made anew",
				slog.String("stream", q.names.orders), slog.String("setting", d.name), slog.Any("was", d.is), slog.Any("is", d.must))
		}
	}
	if err := q.js.DeleteConsumer(ctx, q.names.orders, workerName); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	return q.createWorker(ctx)
}

// forgetDeliveries makes what the process before this one had in hand when it
// died be delivered at once instead of after ackWait.
func (q *Queue) forgetDeliveries(ctx context.Context) error {
	worker, err := q.js.Consumer(ctx, q.names.orders, workerName)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrNotPullConsumer):
		return nil // prepare sees to it
	case err != nil:
		return fmt.Errorf("look at the consumer %s: %w", workerName, err)
	case worker.CachedInfo().NumAckPending == 0:
		return nil
	}
	if err := q.js.DeleteConsumer(ctx, q.names.orders, workerName); err != nil {
		return fmt.Errorf("delete the consumer %s: %w", workerName, err)
	}
	return nil
}

func (q *Queue) createWorker(ctx context.Context) error {
	if _, err := q.js.CreateConsumer(ctx, q.names.orders, q.wanted.worker); err != nil {
		return fmt.Errorf("create it: %w", err)
	}
	q.log.InfoContext(ctx, "the consumer of the order queue was created", slog.String("stream", q.names.orders))
	return nil
}
