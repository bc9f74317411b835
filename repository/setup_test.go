package repository_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"seckill/internal/ids"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// store is one way to keep the data; the suite runs over all of them.
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

// overDialects runs a test over every database.
func overDialects(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	over(t, dialects(), newFixture, test)
}

// overAsync is overStores in async mode.
func overAsync(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	over(t, stores(), newAsync, test)
}

// overAsyncDialects is overDialects in async mode.
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

// overMySQL runs a test with every strategy of MySQL.
func overMySQL(t *testing.T, test func(*testing.T, model.StockStrategy)) {
	t.Helper()
	for _, strategy := range mysqlStrategies() {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			test(t, strategy)
		})
	}
}

// overLostCommits is overMySQL for a COMMIT that is lost, or its answer.
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

// fixture is a migrated database with what works on it.
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

// emptyDatabase has no tables yet.
func emptyDatabase(t testing.TB, s store) sqldb.Options {
	t.Helper()
	if s.dialect == "sqlite" {
		return sqldb.Options{SQLiteFile: filepath.Join(t.TempDir(), "seckill test.db"), Slack: check.Deadline}
	}
	return sqldb.Options{DSN: testserver.Schema(t), Slack: check.Deadline}
}

// newAsync is a fixture of a database that is sold from in async mode.
func newAsync(t testing.TB, s store) *fixture {
	t.Helper()
	f := newFixture(t, s)
	check.Must(t, check.ErrorOf(f.modes.Adopt(t.Context(), model.ModeAsync)))
	f.asIn(t, model.ModeAsync)
	return f
}

// asIn makes the fixture an instance that sells in a mode.
func (f *fixture) asIn(t testing.TB, mode model.OrderMode) {
	t.Helper()
	options := repository.OrderOptions{Strategy: f.store.strategy, PaymentWindow: paymentWindow, Mode: mode}
	f.orders = check.Value(repository.NewOrders(f.db, options))(t)
}

// switchTo makes the database one that is sold from in another mode.
func (f *fixture) switchTo(t testing.TB, mode model.OrderMode) {
	t.Helper()
	check.Must(t, f.modes.Change(t.Context(), mode))
}

// openFixture opens a database as one more instance would.
func openFixture(t testing.TB, s store, options sqldb.Options) *fixture {
	t.Helper()
	f := &fixture{store: s, options: options}
	f.db = check.Value(sqldb.Open(t.Context(), options))(t)
	t.Cleanup(func() { check.Must(t, f.db.Close()) })
	f.asIn(t, "")
	f.vouchers = repository.NewVouchers(f.db, "CNY")
	f.accounts = repository.NewAccounts(f.db)
	f.copies, f.modes, f.releases = repository.NewEpochs(f.db), repository.NewModes(f.db), repository.NewReleases(f.db)
	return f
}

// hasty is one more instance, whose calls end as early as in production.
func (f *fixture) hasty(t testing.TB) *fixture {
	t.Helper()
	options := f.options
	options.Slack = 0
	return openFixture(t, f.store, options)
}

// wired is one more instance, which speaks through a wire.
func (f *fixture) wired(t testing.TB, judge func(*wire, string) verdict) *fixture {
	t.Helper()
	return openFixture(t, f.store, sqldb.Options{DSN: newWire(t, f.options.DSN, judge), Slack: check.Deadline})
}

// onSale makes a published voucher whose window is open.
func (f *fixture) onSale(t testing.TB, stock int64) model.Voucher {
	t.Helper()
	return f.voucher(t, model.VoucherFields{Stock: stock, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour)})
}

func (f *fixture) voucher(t testing.TB, asked model.VoucherFields) model.Voucher {
	t.Helper()
	if asked.Title == "" {
		asked.Title, asked.Price, asked.FaceValue = title, 1000, 5000
	}
	return check.Value(f.vouchers.Create(t.Context(), newID(t), asked, "", model.Idempotency{}))(t)
}

func newID(t testing.TB) string {
	t.Helper()
	return check.Value(ids.New())(t)
}

// order is an order to be created.
func order(t testing.TB, voucherID, userID string) model.Order {
	t.Helper()
	return model.Order{ID: model.OrderID(newID(t), voucherID), VoucherID: voucherID, UserID: userID}
}

// place creates one order.
func (f *fixture) place(t testing.TB, o model.Order) model.Outcome {
	t.Helper()
	return f.create(t, o)[0]
}

// cancel cancels one order.
func (f *fixture) cancel(ctx context.Context, userID, orderID string) (model.Order, bool, error) {
	answers, err := f.orders.Cancel(ctx, []model.Cancellation{{OrderID: orderID, UserID: userID}})
	if err != nil {
		return model.Order{}, false, err
	}
	return answers[0].Order, answers[0].Changed, answers[0].Err
}

func (f *fixture) create(t testing.TB, orders ...model.Order) []model.Outcome {
	t.Helper()
	outcomes := check.Value(f.orders.CreateOrders(t.Context(), orders))(t)
	if len(outcomes) != len(orders) {
		t.Fatalf("%d outcomes for %d orders", len(outcomes), len(orders))
	}
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
	rows := f.number(t, "SELECT COUNT(*) FROM orders WHERE voucher_id = ? AND status IN ('unpaid', 'paid', 'redeemed')", id)
	if !audit.Balanced || audit.Database.LiveOrders != live || rows != live {
		t.Errorf("voucher %s: %+v with %d rows, want %d live orders in balance", id, audit.Database, rows, live)
	}
}

func wantCode(t testing.TB, err error, code model.Code) {
	t.Helper()
	if err == nil || model.CodeOf(err) != code {
		t.Errorf("error %v, want %s", err, code)
	}
}

// wantUnknown: whether the call has changed anything is not known.
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
