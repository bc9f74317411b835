package e2e_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"seckill/internal/ids"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/queue"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/repository/sqldb"
)

// impossible is a currency that no database can store: its column has three letters.
const impossible = "money"

// counterfeiter puts orders on the road without the program: as many and as
// odd ones as a test needs.
type counterfeiter struct {
	copies *hotcopy.Store
	queue  *queue.Queue
}

func newCounterfeiter(t testing.TB, s settings) counterfeiter {
	t.Helper()
	client := redis.NewClient(check.Value(redis.ParseURL(s["SECKILL_REDIS_URL"]))(t))
	log := slog.New(slog.DiscardHandler)
	q := check.Value(queue.Open(t.Context(), queue.Options{URL: s["SECKILL_NATS_URL"], Deployment: deploymentOf(t, s), Replicas: 1, Log: log, Slack: check.Deadline}))(t)
	t.Cleanup(func() {
		_ = client.Close()
		q.Close(context.Background())
	})
	return counterfeiter{copies: hotcopy.New(client, hotcopy.Options{Slack: check.Deadline}), queue: q}
}

// deploymentOf is the name by which a database is known to queues.
func deploymentOf(t testing.TB, s settings) string {
	t.Helper()
	db := check.Value(sqldb.Open(t.Context(), sqldb.Options{DSN: s["SECKILL_DATABASE_DSN"], Log: slog.New(slog.DiscardHandler), Slack: check.Deadline}))(t)
	defer db.Close()
	return check.Value(repository.NewModes(db).Read(t.Context()))(t).Deployment
}

// reserve takes one unit.
func (c counterfeiter) reserve(t testing.TB, voucherID, user string) model.Reservation {
	t.Helper()
	return c.reserveAll(t, voucherID, []string{user})[0]
}

// reserveAll takes one unit for each of the users, who may begin early.
func (c counterfeiter) reserveAll(t testing.TB, voucherID string, users []string) []model.Reservation {
	t.Helper()
	asked := make([]model.ReserveRequest, len(users))
	for i, user := range users {
		unique := check.Value(ids.New())(t)
		asked[i] = model.ReserveRequest{OrderID: model.OrderID(unique, voucherID), VoucherID: voucherID, UserID: user, Early: true}
	}
	admitted := check.Value(c.copies.Reserve(t.Context(), asked))(t)
	reservations := make([]model.Reservation, len(users))
	for i, a := range admitted {
		if a.Err != nil {
			t.Fatalf("reserve for %s: %v", users[i], a.Err)
		}
		reservations[i] = a.Reservation
	}
	return reservations
}

// publish queues orders, up to 500 of them in one message.
func (c counterfeiter) publish(t testing.TB, reservations ...model.Reservation) {
	t.Helper()
	check.Must(t, c.queue.Publish(t.Context(), reservations))
}

// rawStream is the queue of a deployment, as somebody sees it who knows nothing
// of its contents.
type rawStream struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

func streamOf(t *testing.T, s settings) rawStream {
	t.Helper()
	conn := check.Value(nats.Connect(s["SECKILL_NATS_URL"]))(t)
	t.Cleanup(conn.Close)
	js := check.Value(jetstream.New(conn))(t)
	return rawStream{js, check.Value(js.Stream(t.Context(), ordersStream(t, s)))(t)}
}

// last is the newest message, without the id by which the queue would know it
// again: as if the window for that had passed.
func (r rawStream) last(t *testing.T) *nats.Msg {
	t.Helper()
	info := check.Value(r.stream.Info(t.Context()))(t)
	message := check.Value(r.stream.GetMsg(t.Context(), info.State.LastSeq))(t)
	message.Header.Del(nats.MsgIdHdr)
	return &nats.Msg{Subject: message.Subject, Header: message.Header, Data: message.Data}
}

func (r rawStream) repeat(t *testing.T, message *nats.Msg) {
	t.Helper()
	check.Must(t, check.ErrorOf(r.js.PublishMsg(t.Context(), message)))
}

// ordersStream is the stream of a deployment that has started.
func ordersStream(t *testing.T, s settings) string {
	t.Helper()
	return "SECKILL_ORDERS_" + strings.ToUpper(deploymentOf(t, s))
}
