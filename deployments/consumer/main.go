// Command consumer is an example of another system: it writes a line for each event of the stream of SECKILL_EVENTS.
//
//	go run ./deployments/consumer -stream EVENTS -name mail -filter 'seckill.*.events.order.paid'
//
// The server keeps a consumer's place by its name, so that one that was away goes on there. Events come at least once,
// and a repeated one has the id of the first. One order's come in order: so this program works on one at a time, and
// repeats one that fails before the next.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// remembered ids know a repeated event again. A real system would keep the id in its transaction for ever.
	remembered = 10_000
	ackWait    = 30 * time.Second // for the work on one event; then the server sends it again
	pause      = time.Second      // before an event whose work has failed comes again
)

// event is a CloudEvent (CloudEvents 1.0, JSON format) of an order or a voucher.
type event struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`    // order.paid, voucher.change, …
	Subject string          `json:"subject"` // id of the order or the voucher
	Time    time.Time       `json:"time"`
	Data    json.RawMessage `json:"data"` // the order or the voucher as it was then
}

func main() {
	url := flag.String("url", nats.DefaultURL, "the NATS server, as in SECKILL_NATS_URL")
	stream := flag.String("stream", "", "the stream, as in SECKILL_EVENTS")
	name := flag.String("name", "example", "name of the consumer, by which the server keeps its place")
	filter := flag.String("filter", "", "subjects to hear of; empty: all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := consume(ctx, *url, *stream, jetstream.ConsumerConfig{
		Durable: *name, FilterSubject: *filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
		MaxAckPending: 1,
	}, func(e event) error {
		_, err := fmt.Fprintln(os.Stdout, e.Type, e.Subject, string(e.Data))
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // stop has nothing to do any more
	}
}

func consume(ctx context.Context, url, stream string, config jetstream.ConsumerConfig, work func(event) error) error {
	conn, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, stream, config)
	if err != nil {
		return fmt.Errorf("read the stream %q: %w", stream, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read the stream %q: %w", stream, err)
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	done, err := lru.New[string, struct{}](remembered)
	if err != nil {
		return fmt.Errorf("remember events: %w", err)
	}
	for {
		message, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the next event: %w", err)
		}
		if err := handle(message, done, work); err != nil {
			return err
		}
	}
}

// handle works on one message and answers the server. An answer that is lost has the message sent again.
func handle(message jetstream.Msg, done *lru.Cache[string, struct{}], work func(event) error) error {
	var e event
	if err := json.Unmarshal(message.Data(), &e); err != nil {
		fmt.Fprintf(os.Stderr, "no event: %v\n", err)
		return message.TermWithReason("no event") // again it would be none either
	}
	if !done.Contains(e.ID) {
		if err := work(e); err != nil {
			fmt.Fprintf(os.Stderr, "event %s: %v\n", e.ID, err)
			return message.NakWithDelay(pause)
		}
		done.Add(e.ID, struct{}{})
	}
	return message.Ack()
}
