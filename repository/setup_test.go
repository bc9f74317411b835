package repository_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/ids"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

type store struct {
	dialect  string
	strategy model.StockStrategy
}

func (s store) String() string { return s.dialect + "/" + string(s.strategy) }

func stores() []store {
	return []store{
		{dialect: "mysql", strategy: model.StockConditional},
		{dialect: "mysql", strategy: model.StockPessimistic},
		{dialect: "mysql", strategy: model.StockOptimistic},
		{dialect: "sqlite", strategy: model.StockConditional},
		{dialect: "sqlite", strategy: model.StockOptimistic},
	}
}

// overStores runs a test over every database and strategy.
func overStores(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	over(t, stores(), newFixture, test)
}

func overDialects(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	over(t, dialects(), newFixture, test)
}

func overAsync(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	over(t, stores(), newAsync, test)
}

func overAsyncDialects(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	over(t, dialects(), newAsync, test)
}

func dialects() []store { return []store{stores()[0], stores()[3]} }

func over(t *testing.T, list []store, open func(testing.TB, store) *fixture, test func(*testing.T, *fixture)) {
	t.Helper()
	for _, s := range list {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			test(t, open(t, s))
		})
	}
}

func mysqlStrategies() []model.StockStrategy {
	return []model.StockStrategy{model.StockConditional, model.StockPessimistic, model.StockOptimistic}
}

func overMySQL(t *testing.T, test func(*testing.T, model.StockStrategy)) {
	t.Helper()
	for _, strategy := range mysqlStrategies() {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			test(t, strategy)
		})
	}
}

func overLostCommits(t *testing.T, test func(*testing.T, verdict, model.StockStrategy)) {
	t.Helper()
	for name, lost := range map[string]verdict{"not applied": cutBefore, "applied": cutAfter} {
		for _, strategy := range mysqlStrategies() {
			t.Run(name+"/"+string(strategy), func(t *testing.T) {
				t.Parallel()
				test(t, lost, strategy)
			})
		}
	}
}

type fixture struct {
	store    store
	options  sqldb.Options
	db       *sqldb.Database
	orders   *repository.Orders
	vouchers *repository.Vouchers
	accounts *repository.Accounts
	copies   *repository.Epochs
	modes    *repository.Modes
	releases *repository.Releases
}

// title is of more languages than one, with characters of three and of four bytes.
const title = "Tea for two 茶 👩🏽\u200d🚀"

const paymentWindow = 15 * time.Minute

// newFixture is a fixture on a database that is as the migrations leave it.
func newFixture(t testing.TB, s store) *fixture {
	t.Helper()
	return openFixture(t, s, migrated(t, s))
}

// freshFixture is newFixture for a test that changes the tables.
func freshFixture(t testing.TB, s store) *fixture {
	t.Helper()
	f := openFixture(t, s, emptyDatabase(t, s))
	check.Must(t, f.db.Migrate(t.Context()))
	return f
}

func emptyDatabase(t testing.TB, s store) sqldb.Options {
	t.Helper()
	if s.dialect == "sqlite" {
		return sqldb.Options{SQLiteFile: filepath.Join(t.TempDir(), "seckill test.db"), Slack: check.Deadline}
	}
	return sqldb.Options{DSN: testserver.Schema(t), Slack: check.Deadline}
}

func newAsync(t testing.TB, s store) *fixture {
	t.Helper()
	f := newFixture(t, s)
	check.Must(t, check.ErrorOf(f.modes.Adopt(t.Context(), model.ModeAsync)))
	f.asIn(t, model.ModeAsync)
	return f
}

func (f *fixture) asIn(t testing.TB, mode model.OrderMode) {
	t.Helper()
	options := repository.OrderOptions{Strategy: f.store.strategy, PaymentWindow: paymentWindow, Mode: mode}
	f.orders = check.Value(repository.NewOrders(f.db, options))(t)
}

func (f *fixture) switchTo(t testing.TB, mode model.OrderMode) {
	t.Helper()
	check.Must(t, f.modes.Change(t.Context(), mode))
}

func openFixture(t testing.TB, s store, options sqldb.Options) *fixture {
	t.Helper()
	f := &fixture{store: s, options: options}
	f.db = check.Value(sqldb.Open(t.Context(), options))(t)
	t.Cleanup(func() { check.Must(t, f.db.Close()) })
	f.asIn(t, "")
	f.vouchers = repository.NewVouchers(f.db, "CNY")
	f.accounts = &repository.Accounts{DB: f.db}
	f.copies, f.modes, f.releases = &repository.Epochs{DB: f.db}, &repository.Modes{DB: f.db},
		&repository.Releases{DB: f.db}
	return f
}

// hasty is one more instance, whose calls end as early as in production.
func (f *fixture) hasty(t testing.TB) *fixture {
	t.Helper()
	options := f.options
	options.Slack = 0
	return openFixture(t, f.store, options)
}

func (f *fixture) wired(t testing.TB, judge func(*wire, string) verdict) *fixture {
	t.Helper()
	return openFixture(t, f.store, sqldb.Options{DSN: newWire(t, f.options.DSN, judge), Slack: check.Deadline})
}

func (f *fixture) onSale(t testing.TB, stock int64) model.Voucher {
	t.Helper()
	return f.voucher(t, model.VoucherFields{Stock: stock})
}

// voucher makes a voucher; without a window it began an hour ago and ends in an hour.
func (f *fixture) voucher(t testing.TB, asked model.VoucherFields) model.Voucher {
	t.Helper()
	if asked.Title == "" {
		asked.Title, asked.Price, asked.FaceValue = title, 1000, 5000
	}
	if asked.BeginAt.IsZero() {
		asked.BeginAt, asked.EndAt = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	return check.Value(f.vouchers.Create(t.Context(), newID(t), asked, "", model.Idempotency{}))(t)
}

func newID(t testing.TB) string {
	t.Helper()
	return check.Value(ids.New())(t)
}

func order(t testing.TB, voucherID, userID string) model.Order {
	t.Helper()
	return model.Order{ID: model.OrderID(newID(t), voucherID), VoucherID: voucherID, UserID: userID}
}

func (f *fixture) place(t testing.TB, o model.Order) model.Outcome {
	t.Helper()
	return f.create(t, o)[0]
}

func (f *fixture) cancel(ctx context.Context, userID, orderID string) (model.Order, bool, error) {
	answers, err := f.orders.Cancel(ctx, []model.Cancellation{{OrderID: orderID, UserID: userID}})
	if err != nil {
		return model.Order{}, false, err
	}
	return answers[0].Order, answers[0].Changed, answers[0].Err
}

func (f *fixture) cancels(t testing.TB, userID, orderID string) {
	t.Helper()
	_, _, err := f.cancel(t.Context(), userID, orderID)
	check.Must(t, err)
}

func (f *fixture) create(t testing.TB, orders ...model.Order) []model.Outcome {
	t.Helper()
	outcomes := check.Value(f.orders.CreateOrders(t.Context(), orders))(t)
	check.Need(t, len(outcomes) == len(orders), "%d outcomes for %d orders", len(outcomes), len(orders))
	return outcomes
}

func (f *fixture) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	check.Must(t, check.ErrorOf(f.db.SQL().ExecContext(t.Context(), statement, args...)))
}

func (f *fixture) number(t testing.TB, question string, args ...any) int64 {
	t.Helper()
	var n int64
	check.Must(t, f.db.SQL().QueryRowContext(t.Context(), question, args...).Scan(&n))
	return n
}

// balanced checks the conservation of a voucher's units, by what the audit says and by counting rows.
func (f *fixture) balanced(t testing.TB, id string, live int64) {
	t.Helper()
	audit := check.Value(f.vouchers.Audit(t.Context(), id))(t)
	rows := f.number(t, "SELECT COUNT(*) FROM orders WHERE voucher_id = ? AND status IN ('unpaid', 'paid', 'redeemed')",
		id)
	check.That(t, audit.Balanced && audit.Database.LiveOrders == live && rows == live,
		"voucher %s: %+v with %d rows, want %d live orders in balance", id, audit.Database, rows, live)
}

func wantCode(t testing.TB, err error, code model.Code) {
	t.Helper()
	check.That(t, err != nil && model.CodeOf(err) == code, "error %v, want %s", err, code)
}

func wantUnknown(t testing.TB, err error) {
	t.Helper()
	wantCode(t, err, model.CodeUnavailable)
	check.Is(t, "the outcome", err, model.ErrUnknownOutcome)
}

// aboutNow tells of an instant on the database's clock that it is not of another time zone, and was set.
func aboutNow(at time.Time) bool {
	now := time.Now()
	return at.After(now.Add(-15*time.Minute)) && at.Before(now.Add(15*time.Minute))
}

func user(i int) string { return fmt.Sprintf("user:%04d", i) }

// A migration takes a hundred times as long as most tests, so a schema goes from test to test, emptied, or as a copy.

// spare are the schemas that no test uses now. TestMain has nowhere to hand it to the tests.
var spare struct {
	mu      sync.Mutex
	schemas []*schema
	sqlite  []byte // a migrated file
}

type schema struct {
	dsn   string
	clean string // the statements that make it as it was after the migrations
}

func migrated(t testing.TB, s store) sqldb.Options {
	t.Helper()
	if s.dialect == "sqlite" {
		options := emptyDatabase(t, s)
		check.Must(t, os.WriteFile(options.SQLiteFile, sqliteTemplate(t), 0o600))
		return options
	}
	spare.mu.Lock()
	defer spare.mu.Unlock()
	last := len(spare.schemas) - 1
	if last < 0 {
		spare.schemas, last = []*schema{newSchema(t)}, 0
	}
	taken := spare.schemas[last]
	spare.schemas = spare.schemas[:last]
	t.Cleanup(func() { taken.giveBack(t) }) // behind the closing of all that the test opens
	return sqldb.Options{DSN: taken.dsn, Slack: check.Deadline}
}

// lasting is a test whose schema stays when it ends. The server that all tests share goes, with all schemas.
type lasting struct{ testing.TB }

func (lasting) Cleanup(func()) {}

func newSchema(t testing.TB) *schema {
	t.Helper()
	s := &schema{dsn: testserver.Schema(lasting{t})}
	db := check.Value(sqldb.Open(t.Context(), sqldb.Options{DSN: s.dsn, Slack: check.Deadline}))(t)
	defer func() { check.Must(t, db.Close()) }()
	check.Must(t, db.Migrate(t.Context()))
	for _, table := range list(t, db.SQL(), "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()") {
		if table == "schema_versions" {
			continue
		}
		s.clean += "DELETE FROM " + table + ";"
		columns := strings.Join(list(t, db.SQL(),
			"SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '"+
				table+"'"), ", ")
		for _, row := range list(t, db.SQL(), "SELECT CONCAT_WS(', ', QUOTE("+strings.ReplaceAll(columns, ", ", "), QUOTE(")+")) FROM "+table) {
			s.clean += "INSERT INTO " + table + " (" + columns + ") VALUES (" + row + ");"
		}
	}
	return s
}

func (s *schema) giveBack(t testing.TB) {
	t.Helper()
	db := check.Value(sql.Open("mysql", s.dsn+"?multiStatements=true"))(t)
	defer db.Close()
	if _, err := db.ExecContext(context.Background(), s.clean); err != nil {
		t.Errorf("the schema cannot be emptied: %v (is a transaction of the test still open, or a table changed?)", err)
		return
	}
	spare.mu.Lock()
	defer spare.mu.Unlock()
	spare.schemas = append(spare.schemas, s)
}

func list(t testing.TB, db *sql.DB, question string) (all []string) {
	t.Helper()
	rows := check.Value(db.QueryContext(t.Context(), question))(t)
	defer rows.Close()
	for rows.Next() {
		var one string
		check.Must(t, rows.Scan(&one))
		all = append(all, one)
	}
	check.Must(t, rows.Err())
	return all
}

func sqliteTemplate(t testing.TB) []byte {
	t.Helper()
	spare.mu.Lock()
	defer spare.mu.Unlock()
	if spare.sqlite == nil {
		options := emptyDatabase(t, store{dialect: "sqlite"})
		db := check.Value(sqldb.Open(t.Context(), options))(t)
		check.Must(t, db.Migrate(t.Context()))
		check.Must(t, db.Close()) // which empties the log into the file
		spare.sqlite = check.Value(os.ReadFile(options.SQLiteFile))(t)
	}
	return spare.sqlite
}

type verdict int

const (
	pass      verdict = iota
	cutBefore         // the statement is lost with its connection
	cutAfter          // the statement is carried out, its answer lost
	later             // the client loses its connection at once, the statement arrives when late is closed
	refuse            // the statement is refused as by a cluster's node without quorum (1047), and not carried out
	denied            // the statement is carried out, and answered like a refused one
)

// refusal is the packet with which a node without quorum refuses a statement.
var refusal = []byte("\x1b\x00\x00\x01\xff\x17\x04#08S01WSREP is not ready")

// wire is a proxy that reads what a client says to MySQL, statement by statement, and can lose it or its answer.
type wire struct {
	t     testing.TB
	judge func(statement string) verdict // called on its way; it may act on the database
	late  chan struct{}
	over  chan struct{} // the test has ended

	deadlocks atomic.Int32 // that the server has told of
}

var limits = regexp.MustCompile(`/\*M!\S+ SET STATEMENT max_statement_time=\S+ FOR \*/ |/\*\+ MAX_EXECUTION_TIME\(\d+\) \*/ `)

// deadlock is in the packet with which a server ends a transaction for another one's sake (1213).
const deadlock = "\xff\xbd\x04#40001"

func newWire(t testing.TB, dsn string, judge func(w *wire, statement string) verdict) string {
	t.Helper()
	through, _ := watchedWire(t, dsn, judge)
	return through
}

func watchedWire(t testing.TB, dsn string, judge func(w *wire, statement string) verdict) (string, *wire) {
	t.Helper()
	cfg := check.Value(mysql.ParseDSN(dsn))(t)
	w := &wire{t: t, late: make(chan struct{}), over: make(chan struct{})}
	w.judge = func(statement string) verdict { return judge(w, statement) }
	proxy := testserver.NewProxy(t, cfg.Addr, w.carry)
	t.Cleanup(func() { close(w.over) }) // before the proxy ends
	cfg.Addr = proxy.Addr()
	return cfg.FormatDSN(), w
}

// watched is one more instance, and a count of the deadlocks that it and those hear of who are opened with its options.
func (f *fixture) watched(t testing.TB, strategy model.StockStrategy) (*fixture, *atomic.Int32) {
	t.Helper()
	dsn, w := watchedWire(t, f.options.DSN, func(*wire, string) verdict { return pass })
	s := f.store
	s.strategy = strategy
	return openFixture(t, s, sqldb.Options{DSN: dsn, Slack: check.Deadline}), &w.deadlocks
}

func (w *wire) carry(client, server net.Conn) {
	var mute sync.Mutex // locked for good when answers are to be lost
	var deny atomic.Bool
	answers := make(chan struct{})
	defer func() {
		_, _ = client.Close(), server.Close()
		<-answers
	}()
	go func() {
		defer close(answers)
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil || !mute.TryLock() {
				return
			}
			answer := buffer[:n]
			if bytes.Contains(answer, []byte(deadlock)) {
				w.deadlocks.Add(1)
			}
			if deny.Swap(false) {
				answer = refusal
			}
			_, err = client.Write(answer)
			mute.Unlock()
			if err != nil {
				return
			}
		}
	}()
	for {
		packet, err := readPacket(client)
		if err != nil {
			return
		}
		verdict := pass
		if len(packet) > 5 && packet[4] == 3 { // COM_QUERY
			verdict = w.judge(limits.ReplaceAllString(string(packet[5:]), ""))
		}
		switch verdict {
		case cutBefore:
			return
		case cutAfter:
			mute.Lock()
			_, _ = server.Write(packet)
			<-answers // the first answer ends its reader
			return
		case later:
			mute.Lock()
			_ = client.Close()
			select {
			case <-w.late:
			case <-w.over:
				return
			}
			_, _ = server.Write(packet)
			<-answers
			return
		case refuse:
			if _, err := client.Write(refusal); err != nil {
				return
			}
		case denied, pass:
			deny.Store(verdict == denied)
			if _, err := server.Write(packet); err != nil {
				return
			}
		}
	}
}

func readPacket(r io.Reader) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32([]byte{header[0], header[1], header[2], 0})
	packet := make([]byte, 4+size)
	copy(packet, header[:])
	_, err := io.ReadFull(r, packet[4:])
	return packet, err
}

// onceOn gives a verdict to the first statement that begins with a prefix, and lets everything else pass.
func onceOn(prefix string, act func(w *wire) verdict) func(*wire, string) verdict {
	var once sync.Once
	return func(w *wire, statement string) verdict {
		v := pass
		if bytes.HasPrefix([]byte(strings.TrimSpace(statement)), []byte(prefix)) {
			once.Do(func() { v = act(w) })
		}
		return v
	}
}
