package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"seckill/internal/embedded"
	"seckill/model"
	"seckill/queue"
)

// What an embedded server has acknowledged is there when the next one starts.
func TestEmbeddedServerKeepsTheOrders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	for round := range 3 {
		server, err := embedded.StartNATS(dir, log)
		must(t, err)
		q, err := queue.Open(t.Context(), queue.Options{InProcess: server, Deployment: deployment, Log: log})
		must(t, err)
		must(t, q.Publish(t.Context(), some(fmt.Sprintf("r%d", round), 10)))
		if round == 2 {
			var l ledger
			stop := consume(t, q, l.persist, queue.ConsumeOptions{})
			drained(t, q)
			stop()
			if len(l.seen()) != 30 {
				t.Errorf("%d orders, want 30", len(l.seen()))
			}
		}
		q.Close(t.Context())
		server.Close()
	}
}

// What a process had in hand when it died is delivered at once when the next
// one starts: nobody else can have it.
func TestEmbeddedServerForgetsWhoHadTheOrders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	server, err := embedded.StartNATS(dir, log)
	must(t, err)
	options := queue.Options{InProcess: server, Deployment: deployment, Log: log, Alone: true, AckWait: time.Hour}
	q, err := queue.Open(t.Context(), options)
	must(t, err)
	must(t, q.Publish(t.Context(), some("held", 10)))
	held, died := make(chan struct{}), make(chan struct{})
	stop := consume(t, q, func(_ context.Context, orders []model.Reservation) []error {
		close(held)
		<-died
		return slices.Repeat([]error{context.Canceled}, len(orders))
	}, queue.ConsumeOptions{})
	<-held
	server.Close()
	close(died)
	stop()
	q.Close(t.Context())

	server, err = embedded.StartNATS(dir, log)
	must(t, err)
	defer server.Close()
	options.InProcess = server
	q, err = queue.Open(t.Context(), options)
	must(t, err)
	defer q.Close(t.Context())
	var l ledger
	stop = consume(t, q, l.persist, queue.ConsumeOptions{})
	defer stop()
	eventually(t, "they are delivered", func() bool { return len(l.seen()) == 10 })
}
