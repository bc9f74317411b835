package e2e_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/ids"
	"seckill/model"
	"seckill/queue"
	"seckill/repository"
	"seckill/repository/hotcopy"
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
	options, err := redis.ParseURL(s["SECKILL_REDIS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	log := slog.New(slog.DiscardHandler)
	q, err := queue.Open(t.Context(), queue.Options{URL: s["SECKILL_NATS_URL"], Deployment: deployment(t, s), Replicas: 1, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		q.Close(ctx)
	})
	return counterfeiter{copies: hotcopy.New(client, hotcopy.Options{}), queue: q}
}

// deployment is the name by which a database is known to queues.
func deployment(t testing.TB, s settings) string {
	t.Helper()
	db, err := repository.Open(t.Context(), repository.Options{DSN: s["SECKILL_DATABASE_DSN"], Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	mode, err := repository.NewModes(db).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return mode.Deployment
}

// reserve takes one unit.
func (c counterfeiter) reserve(t testing.TB, voucherID, user string) model.Reservation {
	t.Helper()
	return c.reserveAll(t, voucherID, []string{user})[0]
}

// reserveAll takes one unit for each of the users.
func (c counterfeiter) reserveAll(t testing.TB, voucherID string, users []string) []model.Reservation {
	t.Helper()
	asked := make([]model.ReserveRequest, len(users))
	for i, user := range users {
		unique, err := ids.New()
		if err != nil {
			t.Fatal(err)
		}
		asked[i] = model.ReserveRequest{OrderID: model.OrderID(unique, voucherID), VoucherID: voucherID, UserID: user}
	}
	admitted, err := c.copies.Reserve(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := c.queue.Publish(t.Context(), reservations); err != nil {
		t.Fatal(err)
	}
}
