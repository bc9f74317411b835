package hotcopy_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"seckill/internal/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// redisLine is a connection to Redis that can be made to fail.
type redisLine struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
}

// lineTo gives a line to the Redis of a URL, and the URL at its other end.
func lineTo(t testing.TB, url string) (*redisLine, string) {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	upstream := strings.TrimSuffix(strings.TrimPrefix(url, "redis://"), "/0")
	proxy := toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", upstream)
	must(t, proxy.Start())
	t.Cleanup(proxy.Stop)
	return &redisLine{t, proxy}, "redis://" + proxy.Listen + "/0"
}

func (l *redisLine) toxic(kind, attributes string) {
	l.t.Helper()
	_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
		`{"name": %q, "type": %q, "stream": "downstream", "attributes": {%s}}`, kind, kind, attributes)))
	must(l.t, err)
}

// cutReplies lets requests through and breaks the connection at the reply.
func (l *redisLine) cutReplies() { l.t.Helper(); l.toxic("limit_data", `"bytes": 0`) }

func (l *redisLine) heal() {
	l.t.Helper()
	l.proxy.Toxics.ResetToxics(context.Background())
}

// lineSale is a sale that reaches the shared Redis through a line.
func lineSale(t *testing.T) (*sale, *redisLine) {
	t.Helper()
	s := newSale(t, testserver.SharedRedis(t), hotcopy.Options{}, 10)
	// The server must have the script: else it answers NOSCRIPT, and when that is
	// lost nothing was carried out.
	s.release(s.buy("first"))
	line, url := lineTo(t, testserver.SharedRedis(t))
	s.copies = hotcopy.New(openRedis(t, url), hotcopy.Options{})
	s.wants(model.CopyOpen, 10, 0, 0) // it is connected, and knows the epoch
	return s, line
}

// executed waits until an order is in the copy, seen past the line.
func (s *sale) executed(a model.ReserveRequest) {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); s.client.HGet(s.t.Context(), s.key("buyers"), a.UserID).Val() != a.OrderID; {
		if time.Now().After(deadline) {
			s.t.Fatalf("order %s did not arrive", a.OrderID)
		}
	}
}

func TestReserveIsRepeatedAfterALostReply(t *testing.T) {
	t.Parallel()
	s, line := lineSale(t)
	line.cutReplies()
	group := []model.ReserveRequest{s.admission("bob"), s.admission("eve"), s.admission("bob")}
	var answers []model.ReserveResult
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { answers, err = s.copies.Reserve(t.Context(), group) })
	s.executed(group[1])
	line.heal()
	wg.Wait()
	must(t, err)
	if answers[0].Err != nil || answers[1].Err != nil || answers[0].Status != model.OrderProcessing {
		t.Errorf("answers %+v", answers)
	}
	wantCode(t, answers[2].Err, model.CodeAlreadyOrdered)
	s.wants(model.CopyOpen, 8, 2, 2)
}

func TestReserveWithoutAReplyIsUnknown(t *testing.T) {
	t.Parallel()
	s, line := lineSale(t)
	line.cutReplies()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	a := s.admission("bob")
	began := time.Now()
	answers, err := s.copies.Reserve(ctx, []model.ReserveRequest{a})
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %s", took)
	}
	wantErr(t, err, model.ErrUnknownOutcome)
	wantErr(t, answers[0].Err, model.ErrUnknownOutcome)
	wantCode(t, err, model.CodeUnavailable)
	s.executed(a)
	line.heal()
	must(t, s.admit(a).Err)
	s.wants(model.CopyOpen, 9, 1, 1)
}

// Redis that went away in the middle of a call is no proof that nothing was done.
func TestReserveStaysUnknownWhenRedisGoesAway(t *testing.T) {
	t.Parallel()
	s, line := lineSale(t)
	line.cutReplies()
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	a := s.admission("bob")
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { _, err = s.copies.Reserve(ctx, []model.ReserveRequest{a}) })
	s.executed(a)
	line.proxy.Stop() // connections are refused from here on
	wg.Wait()
	wantErr(t, err, model.ErrUnknownOutcome)
}

func TestReleaseAndSettleAreRepeatedAfterALostReply(t *testing.T) {
	t.Parallel()
	s, line := lineSale(t)
	r := s.buy("bob")
	line.cutReplies()
	_, err := s.copies.Release(t.Context(), releaseOf(r))
	wantErr(t, err, model.ErrUnknownOutcome)
	wantErr(t, s.copies.Settle(t.Context(), s.v.ID, []string{r.ID}), model.ErrUnknownOutcome)
	line.heal()
	s.release(r)
	s.wants(model.CopyOpen, 10, 0, 0)
}

// A copy of a request that stayed behind somewhere arrives after its order was
// sold, canceled and given back.
func TestReserveThatArrivesLateIsRefused(t *testing.T) {
	t.Parallel()
	s, line := lineSale(t)
	line.toxic("latency", `"latency": 200`)
	a := s.admission("bob")
	r := s.admit(a).Reservation
	must(t, s.copies.Settle(t.Context(), s.v.ID, []string{r.ID}))
	s.release(r)
	wantErr(t, s.admit(a).Err, model.ErrOrderClosed)
	s.wants(model.CopyOpen, 10, 0, 0)
}
