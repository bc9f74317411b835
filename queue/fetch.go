package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// fetchAll fetches whenever it is wished, until ctx ends.
func (c *consumption) fetchAll(ctx context.Context) error {
	var worker jetstream.Consumer
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wish:
		}
		var err error
		if worker == nil {
			worker, err = c.find(ctx, failures)
		}
		if err == nil {
			err = c.fetch(worker)
		}
		switch {
		case err == nil:
			if failures > 0 {
				c.queue.log.InfoContext(ctx, "orders are fetched again", slog.Int("failures", failures))
			}
			failures = 0
		case errors.Is(err, nats.ErrConnectionClosed):
			return unavailable("consume the orders", err)
		default:
			if failures++; failures == 1 && ctx.Err() == nil {
				c.queue.log.WarnContext(ctx, "orders cannot be fetched", slog.Any("error", err))
			}
			worker = nil
		}
	}
}

// find looks the consumer up. After a failure it waits first, and puts the
// consumer and the stream back if they are gone.
func (c *consumption) find(ctx context.Context, failures int) (jetstream.Consumer, error) {
	if failures > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(growing(repairPause, longestRepairPause, failures)):
		}
		ctx, cancel := context.WithTimeout(ctx, startBudget+c.queue.slack)
		defer cancel()
		var created bool
		err := patiently(ctx, func(ctx context.Context) error {
			made, err := c.queue.prepare(ctx)
			created = created || made
			return err
		})
		if created {
			c.queue.log.ErrorContext(ctx, "the stream of orders was gone: what waited in it comes again only from the reservations")
		}
		if err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askBudget+c.queue.slack)
	defer cancel()
	worker, err := c.queue.js.Consumer(ctx, c.queue.names.orders, workerName)
	if err != nil {
		return nil, fmt.Errorf("look the consumer up: %w", err)
	}
	return worker, nil
}

// fetch makes one fetch and passes its messages on. It is not cut short when the
// consuming ends: messages on their way would stay unacknowledged until ackWait.
func (c *consumption) fetch(worker jetstream.Consumer) error {
	batch, err := worker.Fetch(fetchMessages, jetstream.FetchMaxWait(fetchBudget))
	if err != nil {
		return fmt.Errorf("fetch orders: %w", err)
	}
	for raw := range batch.Messages() {
		c.arrivals <- c.receive(raw)
	}
	if err := batch.Error(); err != nil {
		return fmt.Errorf("fetch orders: %w", err)
	}
	return nil
}
