// Package docs_test proves what from-the-tutorial.md says: each test takes the tutorial's steps on a real Redis and a
// real database, in an order that goes wrong every time. What no step reads or writes is left out.
package docs_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
	"seckill/model"
	"seckill/repository/hotcopy"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// admission is what seckill.lua of the tutorial does. 0 is a promise, 1 sold out, 2 bought already.
const admission = `if tonumber(redis.call('get', KEYS[1])) <= 0 then return 1 end
	if redis.call('sismember', KEYS[2], ARGV[1]) == 1 then return 2 end
	redis.call('incrby', KEYS[1], -1) redis.call('sadd', KEYS[2], ARGV[1])
	redis.call('xadd', KEYS[3], '*', 'userId', ARGV[1]) return 0`

// shop is the tutorial's, with one unit.
type shop struct {
	testing.TB

	db    *sql.DB
	redis *redis.Client
	locks *lock.Client // takes the locks of Redisson's getLock
	keys  []string     // of the stock, the buyers and the stream
}

func newShop(t *testing.T, redisURL string) (s *shop, anna, bert string) {
	t.Helper()
	v := newID()
	s = &shop{TB: t, keys: []string{"seckill:stock:" + v, "seckill:order:" + v, "stream.orders:" + v}}
	s.db = check.Value(sql.Open("mysql", testserver.Schema(t)))(t)
	s.redis = redis.NewClient(check.Value(redis.ParseURL(redisURL))(t))
	s.locks = lock.New(lock.NewRedisStore(s.redis))
	t.Cleanup(func() { check.Must(t, errors.Join(s.locks.Close(context.Background()), s.redis.Close(), s.db.Close())) })
	check.Must(t, check.ErrorOf(s.db.ExecContext(s.Context(), // the only key is the id, as in the tutorial
		"CREATE TABLE tb_voucher_order (id BIGINT AUTO_INCREMENT PRIMARY KEY, user_id VARCHAR(64) NOT NULL)")))
	check.Must(t, errors.Join(s.redis.Set(s.Context(), s.keys[0], 1, 0).Err(),
		s.redis.XGroupCreateMkStream(s.Context(), s.keys[2], "g1", "0").Err()))
	return s, newID(), newID()
}

func newID() string { return strings.ToLower(rand.Text()) }

func (s *shop) admit(user string) int64 {
	return check.Value(s.redis.Eval(s.Context(), admission, s.keys, user).Int64())(s)
}

func (s *shop) lock(user string) *lock.Lease {
	return check.Value(s.locks.Mutex("lock:order:" + user).TryLock(s.Context()))(s)
}

func (s *shop) begin() *sql.Tx { return check.Value(s.db.BeginTx(s.Context(), nil))(s) }

// orders counts those of a user, as createVoucherOrder does.
func (s *shop) orders(ask func(context.Context, string, ...any) *sql.Row, user string) (n int) {
	check.Must(s, ask(s.Context(), "SELECT COUNT(*) FROM tb_voucher_order WHERE user_id = ?", user).Scan(&n))
	return n
}

func (s *shop) insert(tx *sql.Tx, user any) error {
	return check.ErrorOf(tx.ExecContext(s.Context(), "INSERT INTO tb_voucher_order (user_id) VALUES (?)", user))
}

// read is how the tutorial's worker gets its next message; "" is the id of none.
func (s *shop) read(from string) redis.XMessage {
	some, err := s.redis.XReadGroup(s.Context(), &redis.XReadGroupArgs{
		Group: "g1", Consumer: "c1", Streams: []string{s.keys[2], from}, Count: 1, Block: -1,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return redis.XMessage{}
	}
	return check.Value(some, err)(s)[0].Messages[0]
}

// handle is handleVoucherOrder, and the acknowledgement that follows it: who does not get the lock just returns.
func (s *shop) handle(m redis.XMessage) error {
	lease, err := s.locks.Mutex(fmt.Sprint("lock:order:", m.Values["userId"])).TryLock(s.Context())
	if !errors.Is(err, lock.ErrHeld) {
		tx := s.begin()
		defer func() { _, _ = tx.Rollback(), lease.Unlock() }()
		if err := s.insert(tx, m.Values["userId"]); err != nil {
			return err
		}
		check.Must(s, tx.Commit())
	}
	return s.redis.XAck(s.Context(), s.keys[2], "g1", m.ID).Err()
}

func TestTutorialUnlocksBeforeTheCommit(t *testing.T) {
	t.Parallel()
	s, anna, _ := newShop(t, testserver.SharedRedis(t))
	first := s.begin()    // @Transactional, around everything
	lease := s.lock(anna) // the lock, inside
	check.Equal(t, "orders that are there", s.orders(first.QueryRowContext, anna), 0)
	check.Must(t, errors.Join(s.insert(first, anna), lease.Unlock()))
	second, next := s.begin(), s.lock(anna) // another request of hers, before the first COMMIT
	check.Equal(t, "orders that it sees", s.orders(second.QueryRowContext, anna), 0)
	check.Must(t, errors.Join(first.Commit(), s.insert(second, anna), next.Unlock(), second.Commit()))
	check.Equal(t, "orders of one user", s.orders(s.db.QueryRowContext, anna), 2)
}

func TestTutorialSellsTwiceOverTwoNodes(t *testing.T) {
	t.Parallel()
	s, anna, _ := newShop(t, testserver.SharedRedis(t))
	nodes, requests := [2]sync.Mutex{}, [2]*sql.Tx{} // synchronized: each JVM has a monitor of its own
	for i := range nodes {
		nodes[i].Lock()
		requests[i] = s.begin()
		check.Equal(t, "orders that this node sees", s.orders(requests[i].QueryRowContext, anna), 0)
	}
	for i := range nodes {
		check.Must(t, errors.Join(s.insert(requests[i], anna), requests[i].Commit()))
		nodes[i].Unlock()
	}
	check.Equal(t, "orders of one user", s.orders(s.db.QueryRowContext, anna), 2)
	_, reserve := s.hotCopy(time.Now().Add(time.Hour))
	check.Must(t, reserve(anna).Err)
	check.Equal(t, "our second answer", model.CodeOf(reserve(anna).Err), model.CodeAlreadyOrdered)
}

func TestTutorialStopsAtABadMessage(t *testing.T) {
	t.Parallel()
	s, anna, bert := newShop(t, testserver.SharedRedis(t))
	for _, fields := range [][]string{{"uid", anna}, {"userId", bert}} { // the first is of an older version
		check.Must(t, s.redis.XAdd(s.Context(), &redis.XAddArgs{Stream: s.keys[2], Values: fields}).Err())
	}
	bad := s.read(">")
	check.That(t, s.handle(bad) != nil, "a row was made of a bad message")
	for range 3 { // of handlePendingList's endless turns
		again := s.read("0")
		check.That(t, again.ID == bad.ID && s.handle(again) != nil, "it is over with the bad message")
	}
	check.Equal(t, "orders of who stands behind it", s.orders(s.db.QueryRowContext, bert), 0)
}

func TestTutorialForgetsAMessage(t *testing.T) {
	t.Parallel()
	s, anna, _ := newShop(t, testserver.SharedRedis(t))
	check.Equal(t, "admitted", s.admit(anna), 0)
	failed := s.read(">") // the database says 1213, deadlock: handlePendingList is called
	check.Equal(t, "what it finds, reading what is new", s.read(">").ID, "")
	check.Equal(t, "orders of who was promised one", s.orders(s.db.QueryRowContext, anna), 0)
	check.Equal(t, "acknowledged in s1", s.redis.XAck(s.Context(), "s1", "g1", failed.ID).Val(), 0)
}

func TestTutorialPromisesFromMemory(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, "--appendonly", "no", "--save", "3600 1 300 100 60 10000") // as Redis comes
	s, anna, bert := newShop(t, server.URL())
	tasks := make(chan string, 1<<20) // the BlockingQueue
	check.Equal(t, "admitted", s.admit(anna), 0)
	tasks <- anna                    // and the answer is an order's id
	tasks = make(chan string, 1<<20) // the process was killed, and started
	check.Equal(t, "tasks", len(tasks), 0)
	check.Equal(t, "what the next one hears: sold out", s.admit(bert), 1)
	server.Kill() // or Redis was, where the stream is
	server.Start()
	check.Equal(t, "messages", s.redis.XLen(s.Context(), s.keys[2]).Val(), 0)
}

func TestTutorialsStockDrifts(t *testing.T) {
	t.Parallel()
	s, anna, bert := newShop(t, testserver.SharedRedis(t))
	check.Equal(t, "admitted", s.admit(anna), 0)
	elsewhere := s.lock(anna) // in another request of hers
	check.Must(t, errors.Join(s.handle(s.read(">")), elsewhere.Unlock()))
	check.Equal(t, "orders that took the unit of the row", s.orders(s.db.QueryRowContext, anna), 0)
	check.Equal(t, "messages that wait", s.redis.XPending(s.Context(), s.keys[2], "g1").Val().Count, 0)
	check.Equal(t, "bert's try: sold out", s.admit(bert), 1)

	copies, reserve := s.hotCopy(time.Now().Add(time.Hour))
	first := reserve(anna)
	for range 2 { // the outbox tells twice that the order is closed
		check.Must(t, check.ErrorOf(copies.Release(s.Context(), first.Release())))
	}
	check.Must(t, errors.Join(first.Err, reserve(bert).Err))
	check.Equal(t, "our third answer", model.CodeOf(reserve(newID()).Err), model.CodeSoldOut)
}

func TestTutorialSellsAfterTheEnd(t *testing.T) {
	t.Parallel()
	s, anna, _ := newShop(t, testserver.SharedRedis(t))
	check.Must(t, check.ErrorOf(s.db.ExecContext(s.Context(),
		"CREATE TABLE tb_seckill_voucher AS SELECT NOW() - INTERVAL 1 DAY AS end_time")))
	check.Equal(t, "admitted", s.admit(anna), 0)
	_, reserve := s.hotCopy(time.Now().Add(-time.Hour))
	check.Equal(t, "our answer", model.CodeOf(reserve(anna).Err), model.CodeEnded)
}

// hotCopy is ours, of one unit on the same Redis.
func (s *shop) hotCopy(end time.Time) (copies *hotcopy.Store, reserve func(user string) model.ReserveResult) {
	copies = hotcopy.New(s.redis, hotcopy.Options{Slack: check.Deadline})
	v := model.Voucher{ID: newID(), Revision: 1, VoucherFields: model.VoucherFields{
		Price: 1, Stock: 1, State: model.VoucherPublished, BeginAt: end.Add(-2 * time.Hour), EndAt: end,
	}}
	r := model.EpochRecord{VoucherID: v.ID, Epoch: 1}
	check.Must(s, errors.Join(copies.Close(s.Context(), r), copies.Load(s.Context(), r, nil, nil),
		copies.Open(s.Context(), r, v, 0)))
	return copies, func(user string) model.ReserveResult {
		asked := model.ReserveRequest{OrderID: model.OrderID(newID(), v.ID), VoucherID: v.ID, UserID: user}
		return check.Value(copies.Reserve(s.Context(), []model.ReserveRequest{asked}))(s)[0]
	}
}

func TestTutorialsLeaseEnds(t *testing.T) {
	t.Parallel()
	s, name, _ := newShop(t, testserver.SharedRedis(t))
	check.Must(t, s.redis.HSet(s.Context(), name, "a JVM:1", 1).Err()) // what tryLock(1, 1, SECONDS) writes
	check.Must(t, s.redis.Expire(s.Context(), name, time.Second).Err())
	next, err := s.locks.Mutex(name).Lock(s.Context()) // nobody has unlocked: the first one is still at work
	check.Must(t, errors.Join(err, next.Unlock()))
}

// TestThePagesQuoteTheseTests: each block of Go in the pages stands here, and their links lead to functions.
func TestThePagesQuoteTheseTests(t *testing.T) {
	t.Parallel()
	functions := regexp.MustCompile("\\[`(?:\\w+\\.)?(\\w+)`\\]\\((\\.\\.[^)\\s]+\\.go)\\)")
	text := func(file string) string { return string(check.Value(os.ReadFile(file))(t)) }
	source := strings.ReplaceAll(text("from_the_tutorial_test.go"), "\t", "")
	for _, page := range []string{"from-the-tutorial.md", "from-the-tutorial.zh-CN.md"} {
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text(page), -1)
		check.Equal(t, page+": blocks of Go", len(blocks), 8)
		for _, block := range blocks {
			check.That(t, strings.Contains(source, strings.ReplaceAll(block[1], "\t", "")), "not here: %s", block[1])
		}
		for _, link := range functions.FindAllStringSubmatch(text(page), -1) {
			function := regexp.MustCompile(`func (\(.+\) )?` + link[1] + `\(`)
			check.That(t, function.MatchString(text(link[2])), "%s: %s has no %s", page, link[2], link[1])
		}
	}
}
