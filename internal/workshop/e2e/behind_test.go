package e2e_test

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"seckill/internal/ids"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/overlay"
	"seckill/model"
	"seckill/queue"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/repository/sqldb"
)

// impossible is a currency that no database can store: its column has three letters.
const impossible = "money"

// counterfeiter puts orders on the road without the program: as many and as odd ones as a test needs.
type counterfeiter struct {
	copies *hotcopy.Store
	queue  *queue.Queue
}

func newCounterfeiter(t testing.TB, s settings) counterfeiter {
	t.Helper()
	client, log := redisOf(t, s), slog.New(slog.DiscardHandler)
	q := check.Value(queue.Open(t.Context(), queue.Options{URL: s["SECKILL_NATS_URL"], Deployment: deploymentOf(t, s), Replicas: 1, Log: log, Slack: check.Deadline}))(t)
	t.Cleanup(func() { q.Close(context.Background()) })
	return counterfeiter{copies: hotcopy.New(client, hotcopy.Options{Slack: check.Deadline}), queue: q}
}

// redisOf speaks to a deployment's Redis.
func redisOf(t testing.TB, s settings) *redis.Client {
	t.Helper()
	client := redis.NewClient(check.Value(redis.ParseURL(s["SECKILL_REDIS_URL"]))(t))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// refusing is a trigger that refuses a voucher's orders with a signal.
func refusing(name, voucherID, signal string) string {
	return "CREATE TRIGGER " + name + " BEFORE INSERT ON orders FOR EACH ROW IF NEW.voucher_id = '" + voucherID + "' THEN " + signal + "; END IF"
}

// behind is a way to change a database behind everybody's back.
func behind(t testing.TB, s settings) *sql.DB {
	t.Helper()
	db := check.Value(sql.Open("mysql", s["SECKILL_DATABASE_DSN"]))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// execute makes such a change.
func execute(t *testing.T, s settings, statement string) {
	t.Helper()
	check.Must(t, check.ErrorOf(behind(t, s).ExecContext(t.Context(), statement)))
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

// rawStream is the queue of a deployment, as somebody sees it who knows nothing of its contents.
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

// last is the newest message, without the id by which the queue would know it again: as if the window for that had
// passed.
func (r rawStream) last(t *testing.T) *nats.Msg {
	t.Helper()
	info := check.Value(r.stream.Info(t.Context()))(t)
	message := check.Value(r.stream.GetMsg(t.Context(), info.State.LastSeq))(t)
	message.Header.Del(nats.MsgIdHdr)
	return &nats.Msg{Subject: message.Subject, Header: message.Header, Data: message.Data}
}

// ordersStream is the stream of a deployment that has started.
func ordersStream(t *testing.T, s settings) string {
	t.Helper()
	return "SECKILL_ORDERS_" + strings.ToUpper(deploymentOf(t, s))
}

// publishUndoes gives units back after a publish that failed, although the message may be in the queue.
func publishUndoes() overlay.Change {
	const failed = "\t\ts.async.Admission.Unpublished.Add(float64(len(reservations)))\n"
	return overlay.Change{File: "service/sale/order_async.go", Old: failed, New: failed + `
		for _, r := range reservations {
			undo, done := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			_, _ = s.async.Hot.ReleaseAll(undo, r.VoucherID, []model.Release{{OrderID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID}})
			done()
		}
`}
}

// missingIsSoldOut takes a hot copy that is not loaded for an empty one.
func missingIsSoldOut() overlay.Change {
	return overlay.Change{
		File: "service/sale/order_async.go",
		Old:  `return model.Unavailable("The sale is being loaded.", model.ErrCopyClosed)`, New: `return model.SoldOut()`,
	}
}

// handedToAnybody frees a unit in the hot copy that is an order of who waited for it.
func handedToAnybody() overlay.Change {
	return overlay.Change{File: "repository/hotcopy/lua/handover.lua", Old: "    if heir ~= '' then after[heirUser] = heir end\n", New: ""}
}

// The faults build the program with these defects; that their texts still stand in the product is looked at always.
func TestDefectsFitTheProduct(t *testing.T) {
	t.Parallel()
	for _, defect := range []overlay.Change{publishUndoes(), missingIsSoldOut(), handedToAnybody()} {
		check.Must(t, check.ErrorOf(defect.Text("../../..")))
	}
}
