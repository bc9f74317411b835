package app

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/config"
	"seckill/handler"
	"seckill/handler/console"
	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/internal/telemetry"
	"seckill/internal/token"
	"seckill/internal/userlock"
	"seckill/internal/version"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/service"
	"seckill/service/sale"
	"seckill/service/sale/cache"
)

// mainHandler makes what the main listener serves: the API, or the health of an
// instance that only works. It completes the list of probes.
func (i *Instance) mainHandler(
	s servers, mode orderMode, async *AsyncParts, tokens *token.Authority, pay *payments, instances *hotcopy.Instances,
) (http.Handler, error) {
	if i.cfg.Role == config.RoleWorker {
		i.servePayments(pay, s, nil)
		i.health = service.NewHealth(i.probes...)
		return handler.NewHealthOnly(handler.Options{Health: i.health, Build: version.Read(), Log: i.log, Metrics: i.registry})
	}
	counter, err := i.openCounter(s, mode, async, pay.codes)
	if err != nil {
		return nil, err
	}
	accounts, err := i.openAccounts(s.db, tokens)
	if err != nil {
		return nil, err
	}
	i.parts.OnCloseWithin(budget.Look+budget.Brief, "orders", counter.orders.Close)
	i.leave = counter.orders.StartDraining
	rates, err := i.openLimits(s)
	if err != nil {
		return nil, err
	}

	search := service.NewOrderSearch(s.db.Orders, counter.orders, pay.codes)
	redemptions := service.NewRedemptions(s.db.Orders, pay.codes)
	i.servePayments(pay, s, counter.orders.Get)

	i.health = service.NewHealth(i.probes...)
	answers := repository.NewAnswers(s.db.Database)
	tallies, err := i.tellTallies(s, mode, answers, counter.tallies)
	if err != nil {
		return nil, err
	}
	reports := service.NewReports(service.ReportDeps{Vouchers: counter.vouchers, Orders: s.db.Orders, AdminLog: s.db.AdminLog, Draws: s.db.Draws, Answers: answers})
	people, err := i.openConsole(console.Options{
		Vouchers: counter.vouchers, Orders: counter.orders, Payments: s.db.Payments, Refunds: counter.refunds, Redemptions: redemptions,
		Search: search, Codes: pay.codes, People: repository.NewAccounts(s.db.Database),
		AdminLog: s.db.AdminLog, Accounts: accounts, Administrators: s.db.Administrators(), Limits: rates.service, Instances: instances, Tallies: tallies,
		Reports: reports, Draws: s.db.Draws,
		Tokens: tokens, Metrics: counter.metrics,
	}, async)
	if err != nil {
		return nil, err
	}
	var shop http.Handler
	if i.cfg.Embedded() {
		shop = people
	}
	return handler.New(handler.Options{
		Console:        people,
		Shop:           shop,
		Orders:         counter.orders,
		Payments:       pay.service,
		Webhooks:       pay.webhooks,
		OrderSearch:    search,
		Redemptions:    redemptions,
		Refunds:        counter.refunds,
		AdminLog:       s.db.AdminLog,
		Reports:        reports,
		Draws:          s.db.Draws,
		Vouchers:       counter.vouchers,
		Accounts:       accounts,
		Health:         i.health,
		Build:          version.Read(),
		Tokens:         tokens,
		Limits:         rates.service,
		ByUser:         rates.byUser,
		ByAddress:      rates.byAddress,
		TrustedProxies: i.cfg.TrustedProxies,
		Origins:        i.cfg.CORSOrigins,
		Currency:       i.cfg.Currency,
		Log:            i.log,
		Metrics:        i.registry,
		Trace:          i.tracer.HTTP(),
	})
}

// counter is what people ask for.
type counter struct {
	orders   *sale.Orders
	vouchers *service.Vouchers
	refunds  *service.Refunds
	metrics  prometheus.Gatherer // what people watch it by
	tallies  *telemetry.Tallies  // and each voucher
}

// openCounter sells from the database or, when there are asynchronous parts, from the
// hot copies.
func (i *Instance) openCounter(s servers, mode orderMode, async *AsyncParts, codes *service.Codes) (made counter, err error) {
	changes := hotcopy.NewVoucherChanges(s.redis)
	orders := sale.Deps{
		Store: s.db.Orders, Entries: s.db.Draws, Places: s.db.Orders, Announce: changes.AnnounceReturn, Show: codes.Show, LockWait: i.cfg.LockWait, Selling: mode.guard.Selling,
		Trace: i.tracer, Metrics: telemetry.New(i.registry), Tallies: &telemetry.Tallies{}, Log: i.log,
	}
	made.tallies = orders.Tallies
	vouchers := service.VoucherDeps{
		Store: s.db.Vouchers, Announce: changes.Announce, Selling: mode.guard.Selling, Log: i.log,
	}
	locks, lockable, err := userlock.Open(i.lockOptions(s))
	if err != nil {
		return made, err
	}
	if orders.Locks = locks; lockable != nil {
		i.probe("locks", lockable)
	}
	if async == nil {
		vouchers.Stock = service.SyncStock{Store: s.db.Vouchers}
		orders.Cache, err = cache.OfDatabase(s.db, orders.Metrics, i.log)
	} else {
		vouchers.Stock = async.Stock
		orders.Cache, err = cache.OfHotCopies(s.db, async.Hot, orders.Metrics, i.log)
	}
	if err != nil {
		return made, err
	}
	vouchers.Cache = orders.Cache
	i.parts.OnCloseWithin(budget.Blink, "voucher copies", orders.Cache.Close)
	i.parts.Loop("voucher changes", budget.Brief, func(ctx context.Context) {
		changes.Watch(ctx, orders.Cache.Drop, orders.Cache.Returned, orders.Cache.DropAll, orders.Cache.Deaf)
	})

	made.vouchers = service.NewVouchers(vouchers)
	var admission *telemetry.Admission
	if async == nil {
		made.orders = sale.NewSync(orders)
	} else {
		admission = async.admission
		made.orders = sale.NewAsync(orders, sale.AsyncDeps{
			Hot: async.Hot, Queue: async.Queue, Released: s.db.DoneOrders, Relay: async.Relay, Epochs: s.db.Epochs.Latest,
			Rebuild: async.Rebuilder.Ask, ScriptLocks: i.lockOptions(s).InScripts(), Backlog: async.backlog,
			Admission: admission,
		})
	}
	made.metrics = telemetry.Sale(orders.Metrics, admission)
	made.refunds = service.NewRefunds(service.RefundDeps{
		Store: s.db.Refunds, Detail: made.orders.Detail, Cache: orders.Cache, Announce: orders.Announce, Log: i.log,
	})
	return made, nil
}

// tellTallies tells the other instances what this one counts, and the database for the reports.
func (i *Instance) tellTallies(s servers, mode orderMode, answers *repository.Answers, counted *telemetry.Tallies) (*hotcopy.Tallies, error) {
	process, err := ids.New()
	if err != nil {
		return nil, err
	}
	shared := hotcopy.NewTallies(s.redis, i.deployment(s, mode), process)
	tallies := &service.Tallies{
		Counted: counted, Publish: shared.Publish, Log: i.log,
		Keep: func(ctx context.Context, counted map[string]model.Counted) error {
			return answers.Store(ctx, process, counted)
		},
	}
	i.parts.Loop("tallies", budget.Brief, tallies.Share)
	i.parts.OnCloseWithin(budget.Brief, "answers", tallies.Store)
	i.parts.Loop("answers", budget.Brief, tallies.Run)
	return shared, nil
}
