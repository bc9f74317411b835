//go:build faults

//part:packaging
package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
)

// A floor is what one process would take for an order if it did nothing that is not needed. An order costs at least
// what all floors add up to; what lies above is the service's, or the price of something that a floor does not promise.

const (
	reservedAtOnce = 26  // orders, as in a sale on 128 connections
	queuedAtOnce   = 50  // likewise
	storedAtOnce   = 500 // the largest transaction
)

// repeated does something until the measurement's time is over, and returns the CPU time of a server for each order.
func (s *session) repeated(server string, orders int, do func(n int)) map[string]float64 {
	s.Helper()
	for n := range 20 { // everything is warm
		do(n)
	}
	pid := s.servers[server][0].PID()
	n, before := 20, testserver.CPU(s, pid)
	began := time.Now()
	for time.Since(began) < s.lasts {
		do(n)
		n++
	}
	took := time.Since(began)
	cpu := testserver.CPU(s, pid) - before
	made := float64((n - 20) * orders)
	return map[string]float64{server + "-µs/op": float64(cpu.Microseconds()) / made, "answers/s": made / took.Seconds()}
}

// floorHTTP has a program that reads requests with as little as can be, checks tokens as the service does, and answers.
func (s *session) floorHTTP() map[string]float64 {
	address := testserver.Address(s)
	program := testserver.Run(s, environ("BENCH_FLOOR="+address), check.Value(os.Executable())(s))
	check.Eventually(s, "the floor answers", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	rate, µs := s.bare(s, program, address, s.connections[0])
	return map[string]float64{"product-µs/op": µs, "answers/s": rate}
}

func serveFloor(address string) error {
	authority, err := remote.Authority(secret)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	const made = "HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nContent-Length: "
	answer := []byte(made + strconv.Itoa(len(floorOrder)) + "\r\n\r\n" + floorOrder)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			token := ""
			for from := bufio.NewReader(conn); ; {
				line, err := from.ReadSlice('\n')
				switch bearer, found := strings.CutPrefix(string(line), "Authorization: Bearer "); {
				case err != nil:
					return
				case found:
					token = strings.TrimSpace(bearer)
				case len(line) == len("\r\n"):
					if _, err := authority.Verify(context.Background(), token); err != nil {
						return
					}
					if _, err := conn.Write(answer); err != nil {
						return
					}
				}
			}
		}()
	}
}

const floorOrder = `{"id":"0197f2a6-5d5c-7cc1-b5a4-6f1d6f0a2b11.0197f2a6","voucher_id":"0197f2a6","user_id":"b0000001",` +
	`"status":"processing","price":1000,"currency":"CNY","created_at":"2026-01-01T00:00:00.000000Z"}`

// floorInsert writes the rows of orders, and their units, in transactions as large as they ever are.
func (s *session) floorInsert() map[string]float64 {
	id := s.onSale(1, never, -time.Hour)[0]
	return s.repeated("mariadb", storedAtOnce, func(n int) {
		var rows strings.Builder
		for i := range storedAtOnce {
			user := n*storedAtOnce + i
			fmt.Fprintf(&rows, ", ('%026d.%s', '%s', 'b%07d', 'unpaid', 1000, 'CNY', '2026-01-01', '2026-01-01', '2026-01-02')",
				user, id, id, user)
		}
		tx := check.Value(s.db.BeginTx(s.Context(), nil))(s)
		for _, statement := range []string{
			"UPDATE vouchers SET remaining = remaining - " + strconv.Itoa(storedAtOnce) + " WHERE id = '" + id + "'",
			"INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, unpaid_at, expires_at) VALUES " +
				rows.String()[len(", "):],
		} {
			check.Must(s, check.ErrorOf(tx.ExecContext(s.Context(), statement)))
		}
		check.Must(s, tx.Commit())
	})
}

// floorReserve writes what reserve.lua and settle.lua write for orders, by plain commands, and asks nothing.
func (s *session) floorReserve() map[string]float64 {
	client := redis.NewClient(&redis.Options{Addr: s.servers["redis"][0].Addr()})
	defer client.Close()
	return s.repeated("redis", reservedAtOnce, func(n int) {
		var marks, entries, ids []any
		var due []redis.Z
		for i := range reservedAtOnce {
			user := fmt.Sprintf("b%07d", n*reservedAtOnce+i)
			id := "000000000000000000" + user + ".0197f2a6"
			marks, ids = append(marks, user, id), append(ids, id)
			entries = append(entries, id, user+" 1764500000000000 1000 CNY 0197f2a6")
			due = append(due, redis.Z{Score: 1764500000000, Member: id})
		}
		pipe := client.Pipeline()
		pipe.ZAdd(s.Context(), "floor:due", due...)
		pipe.HSet(s.Context(), "floor:buyers", marks...)
		pipe.HSet(s.Context(), "floor:pending", entries...)
		check.Must(s, check.ErrorOf(pipe.Exec(s.Context())))
		pipe.Do(s.Context(), append([]any{"hdel", "floor:pending"}, ids...)...)
		pipe.ZRem(s.Context(), "floor:due", ids...)
		check.Must(s, check.ErrorOf(pipe.Exec(s.Context())))
	})
}

// floorPublish stores messages of a group's size on disk, and has each delivered and acknowledged.
func (s *session) floorPublish() map[string]float64 {
	stream := check.Value(s.stream.CreateStream(s.Context(), jetstream.StreamConfig{
		Name: "FLOOR", Subjects: []string{"floor"}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
	}))(s)
	consumer := check.Value(stream.CreateConsumer(s.Context(), jetstream.ConsumerConfig{
		Durable: "floor", AckPolicy: jetstream.AckExplicitPolicy,
	}))(s)
	consuming := check.Value(consumer.Consume(func(m jetstream.Msg) { _ = m.Ack() }))(s)
	defer consuming.Stop()
	const order = 160 // bytes in a message
	group := []byte(strings.Repeat("o", order*queuedAtOnce))
	return s.repeated("nats", queuedAtOnce, func(int) {
		check.Must(s, check.ErrorOf(s.stream.Publish(s.Context(), "floor", group)))
	})
}
