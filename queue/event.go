package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/budget"
	"seckill/model"
)

const (
	// eventFlight bounds the events that wait for their acknowledgement at once.
	eventFlight = 256
	// cloudEvents is the media type of an event (CloudEvents 1.0, JSON format, section 3).
	cloudEvents = "application/cloudevents+json"
)

// EventOptions say to which stream events go, and whose they are.
type EventOptions struct {
	URL        string // as Options.URL
	Access            // as Options.Access
	Stream     string
	Deployment string
	Replicas   int // 0 is one
	Log        *slog.Logger
}

// Events publishes what happened, for other systems, over its own connection: sync has no queue.
type Events struct {
	conn *nats.Conn
	js   jetstream.JetStream
	o    EventOptions
}

// OpenEvents connects, and makes the stream if there is none. An existing one stays as its administrator wants it.
func OpenEvents(ctx context.Context, o EventOptions) (*Events, error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Settled)
	defer cancel()
	if _, err := namesOf(o.Deployment); err != nil {
		return nil, err
	}
	e := &Events{o: o}
	var err error
	if e.conn, err = connect(ctx, Options{URL: o.URL, Access: o.Access, Deployment: o.Deployment, Log: o.Log},
		func(error) {}); err != nil {
		return nil, err
	}
	if e.js, err = jetstream.New(e.conn, jetstream.WithDefaultTimeout(budget.Call)); err == nil {
		err = patiently(ctx, e.prepare)
	}
	if err != nil {
		e.conn.Close()
		return nil, fmt.Errorf("open the stream of events %s: %w", o.Stream, err)
	}
	return e, nil
}

func (e *Events) prepare(ctx context.Context) error {
	if _, err := e.js.Stream(ctx, e.o.Stream); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	_, err := e.js.CreateStream(ctx, jetstream.StreamConfig{
		Name:        e.o.Stream,
		Description: "seckill: what happened to orders and vouchers",
		Subjects:    []string{e.subject(">")},
		Storage:     jetstream.FileStorage,
		Replicas:    max(e.o.Replicas, 1),
		// Any number of consumers read it, each at its own pace.
		Retention:  jetstream.LimitsPolicy,
		MaxAge:     budget.Week,
		Duplicates: budget.Late,
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another instance was faster, or an administrator
		return nil
	}
	return err
}

// Close ends the connection.
func (e *Events) Close() { e.conn.Close() }

// Ping asks whether the server answers and has the stream.
func (e *Events) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Call)
	defer cancel()
	if _, err := e.js.Stream(ctx, e.o.Stream); err != nil {
		return unavailable("ask for the stream of events", err)
	}
	return nil
}

// subject is where events of a type are published: consumers may ask for some types only.
func (e *Events) subject(kind string) string { return "seckill." + e.o.Deployment + ".events." + kind }

type cloudEvent struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Subject     string          `json:"subject"`
	Time        time.Time       `json:"time"`
	DataType    string          `json:"datacontenttype"`
	Data        json.RawMessage `json:"data"`
}

// Publish publishes events, and returns how many of the first are stored for certain. Those of one order keep their
// order: never are two under way. A repeated event keeps its id, by which the stream and its readers know it.
func (e *Events) Publish(ctx context.Context, events []model.Event) (published int, err error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	for published < len(events) {
		flight := e.flight(events[published:])
		done, err := e.fly(ctx, flight)
		published += done
		if err != nil {
			return published, err
		}
	}
	return published, nil
}

// flight is the longest beginning of events that are all of different subjects.
func (e *Events) flight(events []model.Event) []model.Event {
	seen := map[string]bool{}
	for i, event := range events {
		if i == eventFlight || seen[event.Subject] {
			return events[:i]
		}
		seen[event.Subject] = true
	}
	return events
}

func (e *Events) fly(ctx context.Context, events []model.Event) (done int, err error) {
	acks := make([]jetstream.PubAckFuture, len(events))
	for i, event := range events {
		message, err := e.message(event)
		if err != nil {
			return 0, err
		}
		if acks[i], err = e.js.PublishMsgAsync(message, jetstream.WithExpectStream(e.o.Stream)); err != nil {
			if err = e.bare(ctx, event, err); err != nil {
				return 0, unavailable("publish event "+strconv.FormatInt(event.ID, 10), err)
			}
		}
	}
	for i, ack := range acks {
		if ack == nil {
			continue
		}
		select {
		case <-ack.Ok():
			continue
		case err = <-ack.Err():
			err = e.bare(ctx, events[i], err)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return i, unavailable("publish event "+strconv.FormatInt(events[i].ID, 10), err)
		}
	}
	return len(events), nil
}

// bare publishes an event that is too large without its data, so that later ones go on. Every other error stays.
func (e *Events) bare(ctx context.Context, event model.Event, refusal error) error {
	if !tooLarge(refusal) {
		return refusal
	}
	e.o.Log.ErrorContext(ctx, "an event is larger than the stream takes, and is published without its data",
		slog.Int64("event", event.ID),
		slog.String("type", event.Type), slog.Int("bytes", len(event.Data)))
	event.Data = "null"
	message, err := e.message(event)
	if err == nil {
		_, err = e.js.PublishMsg(ctx, message, jetstream.WithExpectStream(e.o.Stream))
	}
	return err
}

func (e *Events) message(event model.Event) (*nats.Msg, error) {
	id, body, err := cloudEventOf(e.o.Deployment, event)
	message := nats.NewMsg(e.subject(event.Type))
	message.Data = body
	message.Header.Set("Content-Type", cloudEvents)
	message.Header.Set(nats.MsgIdHdr, id)
	return message, err
}

// cloudEventOf writes an event down. Its id is the same each time.
func cloudEventOf(deployment string, event model.Event) (id string, body []byte, err error) {
	id = deployment + "-" + strconv.FormatInt(event.ID, 10)
	if body, err = json.Marshal(cloudEvent{
		SpecVersion: "1.0", ID: id, Source: "/seckill/" + deployment, Type: event.Type, Subject: event.Subject,
		Time: event.HappenedAt.UTC(), DataType: "application/json", Data: json.RawMessage(event.Data),
	}); err != nil {
		err = fmt.Errorf("write event %d: %w", event.ID, err)
	}
	return id, body, err
}
