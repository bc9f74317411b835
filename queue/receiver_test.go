package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"seckill/internal/payment"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/queue"
)

const eventSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// heard is what a receiver of events got, in its order.
type heard struct {
	mu     sync.Mutex
	ids    []string // of events by subject, such as o1/d-7
	answer func(id string, times int) int
	times  map[string]int
}

// hears is a receiver that verifies each event as the library does, and answers 204, or as answer says.
func hears(t testing.TB, answer func(id string, times int) int) (*heard, *httptest.Server) {
	t.Helper()
	h := &heard{answer: answer, times: map[string]int{}}
	hook := check.Value(standardwebhooks.NewWebhook(eventSecret))(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := check.Value(io.ReadAll(r.Body))(t)
		var event struct{ SpecVersion, ID, Source, Type, Subject string }
		err := errors.Join(hook.Verify(body, r.Header), json.Unmarshal(body, &event))
		if err != nil || event.ID != r.Header.Get("Webhook-Id") || event.SpecVersion != "1.0" ||
			event.Source != "/seckill/d" || r.Header.Get("Content-Type") != "application/cloudevents+json" {
			t.Errorf("%v, %+v, %v", err, event, r.Header)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.times[event.ID]++
		status := http.StatusNoContent
		if h.answer != nil {
			status = h.answer(event.ID, h.times[event.ID])
		}
		if status == http.StatusNoContent {
			h.ids = append(h.ids, event.Subject+"/"+event.ID)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return h, server
}

func receiverOf(t testing.TB, url string, private bool) *queue.Receiver {
	t.Helper()
	r := queue.NewReceiver(url, "d", check.Value(payment.NewSignatures([]string{eventSecret}))(t), private)
	t.Cleanup(r.Close)
	return r
}

func someEvents(subjects string) (events []model.Event) {
	for i, subject := range subjects {
		events = append(events, model.Event{
			ID: int64(i + 1), Type: "order.paid", Subject: string(subject), HappenedAt: time.Now(), Data: "{}",
		})
	}
	return events
}

// What a receiver answers decides: 2xx takes an event, a redirect is not followed, and 410 ends it.
func TestAnswersOfReceivers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events string
		answer func(id string, times int) int
		want   int // published
		err    string
	}{
		"all are taken":          {"abcabc", nil, 6, ""},
		"another 2xx":            {"a", func(string, int) int { return http.StatusAccepted }, 1, ""},
		"a redirect":             {"a", func(string, int) int { return http.StatusTemporaryRedirect }, 0, "307"},
		"an error":               {"a", func(string, int) int { return http.StatusBadRequest }, 0, "400"},
		"an error now and then":  {"abcabc", func(_ string, times int) int { return []int{500, 204}[min(times-1, 1)] }, 6, ""},
		"gone":                   {"aa", func(string, int) int { return http.StatusGone }, 0, model.ErrReceiverGone.Error()},
		"one that is not taken":  {"abab", func(id string, _ int) int { return map[bool]int{true: 500, false: 204}[id == "d-3"] }, 2, "500"},
		"the first is not taken": {"ab", func(id string, _ int) int { return map[bool]int{true: 500, false: 204}[id == "d-1"] }, 0, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, server := hears(t, c.answer)
			done, err := receiverOf(t, server.URL+"/hook", true).Publish(t.Context(), someEvents(c.events))
			check.Equal(t, "events published", done, c.want)
			check.That(t, (err == nil) == (c.err == "") && (err == nil || strings.Contains(err.Error(), c.err)) &&
				errors.Is(err, model.ErrReceiverGone) == (name == "gone"), "error %v", err)
			h.mu.Lock()
			defer h.mu.Unlock()
			if name == "gone" || name == "a redirect" {
				check.That(t, h.times["d-1"] == 1, "it was sent %v times", h.times)
			}
		})
	}
}

// An order's events come one after the other, whatever a receiver answers to others, and each with its own id again.
func TestAnOrdersEventsComeInOrder(t *testing.T) {
	t.Parallel()
	h, server := hears(t, func(string, int) int {
		time.Sleep(rand.N(3 * time.Millisecond)) // real time: answers overtake one another
		return []int{500, 204, 204}[rand.N(3)]
	})
	r := receiverOf(t, server.URL, true)
	events := someEvents(strings.Repeat("abcdefghijklmnopqrstuvwxyz", 8))
	ctx, cancel := context.WithTimeout(t.Context(), check.Deadline)
	defer cancel()
	for left := events; len(left) > 0; {
		done, err := r.Publish(ctx, left)
		check.Need(t, err == nil || ctx.Err() == nil, "%d events are left: %v", len(left), err)
		left = left[done:]
	}
	latest, first := map[string]int{}, map[string]bool{}
	for _, id := range h.ids {
		if first[id] {
			continue
		}
		first[id] = true
		n := check.Value(strconv.Atoi(id[len("a/d-"):]))(t)
		check.Need(t, n >= latest[id[:1]], "event %s came behind number %d", id, latest[id[:1]])
		latest[id[:1]] = n
	}
	check.Equal(t, "events", len(first), len(events))
}

// Only public addresses are dialed, whatever a name or a URL says.
func TestPrivateReceiversAreRefused(t *testing.T) {
	t.Parallel()
	h, server := hears(t, nil)
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "0.0.0.0", "[::]", "10.0.0.1",
		"172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "[fe80::1]", "[fd00::1]", "[fec0::1]",
		"[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::7f00:1]", "192.0.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255",
	} {
		_, err := receiverOf(t, "http://"+host+port, false).Publish(t.Context(), someEvents("a"))
		check.That(t, err != nil && (strings.Contains(err.Error(), "is no public address") || strings.Contains(err.Error(), "lookup")),
			"%s: %v", host, err)
	}
	check.Equal(t, "events that arrived", len(h.ids), 0)
	check.Must(t, check.ErrorOf(receiverOf(t, "http://localhost"+port, true).Publish(t.Context(), someEvents("a"))))
	check.Equal(t, "events that arrived where private addresses are allowed", len(h.ids), 1)
}
