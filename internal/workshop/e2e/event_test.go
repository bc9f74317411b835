//part:races

package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// newStream is the name of a stream that no other test has.
func newStream() string { return "EVENTS_" + rand.Text() }

// eventRead is an event as another system reads it.
type eventRead struct {
	SpecVersion string         `json:"specversion"`
	ID          string         `json:"id"`
	Source      string         `json:"source"`
	Type        string         `json:"type"`
	Subject     string         `json:"subject"`
	Time        time.Time      `json:"time"`
	Data        map[string]any `json:"data"`
}

// readEvents reads a stream from its beginning until enough says so, and returns the types of each subject's events in
// their order.
func readEvents(t *testing.T, url, stream string, enough func(told map[string][]string) bool) map[string][]string {
	t.Helper()
	conn := check.Value(nats.Connect(url))(t)
	defer conn.Close()
	js := check.Value(jetstream.New(conn))(t)
	ctx := check.Context(t)
	consumer := check.Value(js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{}))(t)
	told, seen := map[string][]string{}, map[string]bool{}
	for !enough(told) {
		message, err := consumer.Next(jetstream.FetchMaxWait(check.Deadline))
		check.Need(t, err == nil, "after %v: %v", told, err)
		var event eventRead
		if err := json.Unmarshal(message.Data(), &event); err != nil {
			t.Fatalf("%s: %v", message.Data(), err)
		}
		published := check.Value(message.Metadata())(t).Timestamp
		if event.SpecVersion != "1.0" || event.Source == "" || published.Sub(event.Time).Abs() > time.Minute || len(event.Data) == 0 ||
			message.Headers().Get("Content-Type") != "application/cloudevents+json" || message.Headers().Get(nats.MsgIdHdr) != event.ID {
			t.Errorf("%s %v", message.Data(), message.Headers())
		}
		check.That(t, !seen[event.ID], "event %s is in the stream twice", event.ID)
		seen[event.ID] = true
		told[event.Subject] = append(told[event.Subject], event.Type)
	}
	return told
}

// TestEvents: other systems hear of everything that happens to an order and a voucher, in order, in both order modes.
func TestEvents(t *testing.T) {
	t.Parallel()
	for name, deployment := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, stream := testserver.SharedNATS(t), newStream()
			a := start(t, deployment(t).with(settings{"SECKILL_EVENTS": stream, "SECKILL_NATS_URL": url}))
			voucher := a.Create(t, map[string]any{"stock": 2, "payment_window": "1s"})
			object(t, a.Insist(t, http.MethodPatch, "/admin/vouchers/"+voucher.ID, a.Admin(t), `{"title":"Cake"}`), http.StatusOK)
			var orders []model.Order
			for n := range 2 {
				orders = append(orders, a.bought(t, voucher.ID, a.user(n)))
			}
			canceled := a.Insist(t, http.MethodPost, "/orders/"+orders[0].ID+"/cancel", a.as(t, a.user(0)), nil)
			end := "order.canceled"
			if canceled.Code() == model.CodeIllegalState { // a starved machine was slower than its window
				end = "order.expired"
			}
			want := map[string][]string{
				voucher.ID:   {"voucher.create", "voucher.change"},
				orders[0].ID: {"order.unpaid", end},
				orders[1].ID: {"order.unpaid", "order.expired"},
			}
			told := readEvents(t, url, stream, func(told map[string][]string) bool {
				return len(told[orders[0].ID]) == 2 && len(told[orders[1].ID]) == 2
			})
			for subject, types := range want {
				if !slices.Equal(told[subject], types) {
					t.Errorf("of %s it tells %v, want %v", subject, told[subject], types)
				}
			}
		})
	}
}
