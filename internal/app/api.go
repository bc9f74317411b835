package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/config"
	"seckill/handler"
	"seckill/handler/console"
	"seckill/internal/budget"
	"seckill/internal/embedded"
	"seckill/internal/ids"
	"seckill/internal/password"
	"seckill/internal/ratelimit"
	"seckill/internal/telemetry"
	"seckill/internal/token"
	"seckill/internal/userlock"
	"seckill/internal/version"
	"seckill/model"
	"seckill/queue"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/service"
	"seckill/service/repair"
	"seckill/service/sale"
	"seckill/service/sale/cache"
)

// mainHandler is the main listener's: the API, or the health of an instance that only works. It completes the probes.
func (i *Instance) mainHandler(
	s servers, mode orderMode, async *AsyncParts, tokens *token.Authority, pay *payments, instances *hotcopy.Instances,
) (http.Handler, error) {
	if i.cfg.Role == config.RoleWorker {
		i.servePayments(pay, s, nil)
		i.health = service.NewHealth(i.probes...)
		return handler.NewHealthOnly(handler.Options{
			Health: i.health, Build: version.Read(), Log: i.log,
			Metrics: i.registry,
		})
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
	rates := i.openLimits(s)

	search := service.NewOrderSearch(s.db.Orders, counter.orders, pay.codes)
	if pay.codes != nil {
		pay.codes.Voucher = s.db.Vouchers.Get
	}
	redemptions := service.NewRedemptions(s.db.Orders, pay.codes, counter.orders.Detail)
	i.servePayments(pay, s, counter.orders)

	i.health = service.NewHealth(i.probes...)
	answers := &repository.Answers{DB: s.db.Database}
	tallies, err := i.tellTallies(s, mode, answers, counter.tallies)
	if err != nil {
		return nil, err
	}
	reports := service.NewReports(service.ReportDeps{
		Vouchers: counter.vouchers, Orders: s.db.Orders,
		AdminLog: s.db.AdminLog, Draws: s.db.Draws, Answers: answers,
	})
	known, users := &repository.Accounts{DB: s.db.Database}, &repository.People{DB: s.db.Database}
	people, err := i.openConsole(console.Options{
		Vouchers: counter.vouchers, ListOrders: counter.orders.List, Order: counter.orders.Detail,
		CancelOrder: counter.orders.CancelFor, PaymentsOf: s.db.Payments.OfOrder, RefundOrder: counter.refunds.Request,
		PaidElsewhere: pay.service.Elsewhere, PaidBack: counter.refunds.PaidBack,
		ListRefunds: s.db.Refunds.List,
		Redemptions: redemptions, Search: search, Codes: pay.codes,
		AccountByID: known.ByID, AccountByName: known.ByUsername, FindUsers: users.Find, Places: users.Places,
		AdminLog: s.db.AdminLog.List, Accounts: accounts, Administrators: s.db.Administrators(),
		Limits: rates.service, Receivers: s.db.Events.Receivers, ReplayEvents: s.db.Events.Replay,
		Instances: instances.Alive, Tallies: tallies.Read, Reports: reports, Proof: s.db.Draws.Proof,
		Beacon: s.db.Draws.SetValue,
		Tokens: tokens, Metrics: counter.metrics,
	}, async)
	if err != nil {
		return nil, err
	}
	var shop http.Handler
	if i.cfg.Embedded() {
		shop = people
	}
	persons := s.db.People(i.log)
	persons.Leave, persons.Cache, persons.Selling = counter.orders.Leave, accounts.Cache, counter.orders.List
	if async != nil {
		persons.Copies = s.db.Epochs.Kept
	}
	return handler.New(handler.Options{
		People:  persons,
		Console: people, Shop: shop, Orders: counter.orders, Payments: pay.service, Webhooks: pay.webhooks,
		Search: search.Find, Export: search.Each, Redeem: redemptions.Redeem, Unredeem: redemptions.Unredeem,
		Refund: counter.refunds.Request, Refunds: s.db.Refunds.List, PaidBack: counter.refunds.PaidBack,
		Withdraw: counter.refunds.Withdraw,
		AdminLog: s.db.AdminLog.List, Report: reports.Make, Replay: reports.Replay, Draws: s.db.Draws, Vouchers: counter.vouchers,
		Accounts: accounts, Health: i.health, Build: version.Read(), Tokens: tokens,
		Receivers: s.db.Events.Receivers, ReplayEvents: s.db.Events.Replay,
		Limits: rates.service, ByUser: rates.byUser, ByAddress: rates.byAddress,
		TrustedProxies: i.cfg.TrustedProxies, Origins: i.cfg.CORSOrigins, Currency: i.cfg.Currency,
		Log: i.log, Metrics: i.registry, Trace: i.tracer.HTTP(),
	})
}

type counter struct {
	orders   *sale.Orders
	vouchers *service.Vouchers
	refunds  *service.Refunds
	metrics  prometheus.Gatherer // what people watch it by
	tallies  *telemetry.Tallies  // and each voucher
}

// openCounter sells from the database or, when there are asynchronous parts, from the hot copies.
func (i *Instance) openCounter(
	s servers, mode orderMode, async *AsyncParts, codes *service.Codes,
) (made counter, err error) {
	changes := hotcopy.NewVoucherChanges(s.redis)
	orders := sale.Deps{
		Store: s.db.Orders, Entries: s.db.Draws, Places: s.db.Orders, Announce: changes.AnnounceReturn,
		Show: codes.Show, LockWait: i.cfg.LockWait, Selling: mode.guard.Selling,
		Trace: i.tracer, Metrics: telemetry.New(i.registry), Tallies: &telemetry.Tallies{}, Log: i.log,
	}
	made.tallies = orders.Tallies
	vouchers := service.VoucherDeps{
		Store: s.db.Vouchers, Announce: changes.Announce, Selling: mode.guard.Selling, Codes: codes, Log: i.log,
	}
	locks, lockable, err := userlock.Open(i.lockOptions(s))
	if err != nil {
		return made, err
	}
	if orders.Locks = locks; lockable != nil {
		i.probe("locks", lockable)
	}
	if async == nil {
		vouchers.Stock = service.SyncStock{VoucherStore: s.db.Vouchers}
		orders.Cache, err = cache.New(s.db, nil, orders.Metrics, i.log)
	} else {
		vouchers.Stock = async.Stock
		orders.Cache, err = cache.New(s.db, async.Hot, orders.Metrics, i.log)
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
			Hot: async.Hot, Queue: async.Queue, Released: s.db.DoneOrders, Relay: async.Relay,
			Epochs:  s.db.Epochs.Latest,
			Rebuild: async.Rebuilder.Ask, ScriptLocks: i.lockOptions(s).InScripts(), Backlog: async.backlog,
			Admission: admission,
		})
	}
	made.metrics = telemetry.Sale(orders.Metrics, admission)
	made.refunds = &service.Refunds{
		Store: s.db.Refunds, Detail: made.orders.Detail, Cache: orders.Cache, Announce: orders.Announce, Log: i.log,
	}
	return made, nil
}

// tellTallies tells the other instances what this one counts, and the database for the reports.
func (i *Instance) tellTallies(
	s servers, mode orderMode, answers *repository.Answers, counted *telemetry.Tallies,
) (*hotcopy.Tallies, error) {
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

// openConsole makes what people see in a browser; nil where the settings want none.
func (i *Instance) openConsole(options console.Options, async *AsyncParts) (http.Handler, error) {
	if !i.cfg.Console {
		return nil, nil //nolint:nilnil // none is what was asked for
	}
	if async != nil {
		options.Behind = behind{async.Auditor, async.Replayer, async.Queue}
	}
	options.Shop = i.cfg.Embedded()
	options.Health, options.Build = i.health, version.Read()
	options.Mode, options.Currency = i.cfg.OrderMode, i.cfg.Currency
	options.Log = i.log.With(slog.String("part", "console"))
	people, err := console.New(options)
	if err != nil {
		return nil, err
	}
	i.parts.Loop("the charts of sales", budget.Brief, people.Record)
	return people, nil
}

type behind struct {
	*repair.Auditor
	*repair.Replayer
	*queue.Queue
}

// openTokens makes an instance's authority, which keeps other issuers' keys up to date. A worker has none.
func (i *Instance) openTokens(ctx context.Context) (*token.Authority, error) {
	names := []string{i.cfg.JWTIssuer}
	for _, other := range i.cfg.JWTIssuers {
		names = append(names, other.Name)
	}
	refusals := telemetry.NewTokens(i.registry, names...)
	if i.cfg.Role == config.RoleWorker {
		return nil, nil //nolint:nilnil // see above
	}
	count := func(issuer string, why token.Reason) { refusals.WithLabelValues(issuer, string(why)).Inc() }
	tokens, err := Tokens(ctx, i.cfg, token.Trust(i.log, i.cfg.JWTIssuers...), token.Report(i.log, count))
	if err != nil {
		return nil, err
	}
	if len(i.cfg.JWTIssuers) > 0 {
		i.parts.Loop("keys of token issuers", budget.Brief, tokens.Run) //nolint:contextcheck // until the stop
	}
	return tokens, nil
}

// Tokens makes the authority that signs and verifies with the settings' secrets, or the data directory's.
func Tokens(ctx context.Context, cfg config.Config, options ...token.Option) (*token.Authority, error) {
	keys := cfg.JWTKeys
	if len(keys) == 0 && !cfg.Embedded() { // the settings of a worker
		return nil, errors.New("SECKILL_JWT_SECRET is required with a real database")
	}
	if len(keys) == 0 {
		secret, err := embedded.Secret(ctx, cfg.DataDir)
		if err != nil {
			return nil, err
		}
		keys = []token.Key{{ID: "1", Secret: secret}}
	}
	return token.New(keys, cfg.JWTIssuer, cfg.JWTAudience, options...)
}

// newHasher hashes on half of the processors: the other half is the sale's.
func newHasher() *password.Hasher { return password.New(runtime.GOMAXPROCS(0) / 2) }

// openAccounts makes the service of accounts. What ended tokens before is known, once the schema is up to date.
func (i *Instance) openAccounts(db *Database, tokens *token.Authority) (*service.Accounts, error) {
	store := &repository.Accounts{DB: db.Database}
	known, err := cache.NewAccounts(cache.AccountSource{ByID: store.ByID, Changed: store.Changed},
		service.LongestSession+budget.Hour, i.log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), budget.Step)
	defer cancel()
	if err := known.Refresh(ctx); err != nil {
		i.log.WarnContext(ctx, "changes of accounts are not known at the start", slog.Any("error", err))
	}
	i.parts.Loop("account changes", budget.Brief, known.Watch)
	return service.NewAccounts(service.AccountDeps{
		Store: store, Hasher: newHasher(), Tokens: tokens, Cache: known, Metrics: telemetry.NewAccounts(i.registry),
		Log: i.log,
	}), nil
}

// People tells what is held of a user, and erases it.
type People = service.People

// People is a People of the database alone.
func (db *Database) People(log *slog.Logger) *People {
	return &People{
		Store: &repository.People{DB: db.Database}, Orders: db.Orders, Account: (&repository.Accounts{DB: db.Database}).ByID,
		PaymentsOf: db.Payments.OfOrder, Refunds: db.Refunds.List, AdminLog: db.AdminLog.List, Log: log,
	}
}

// Administrators looks after administrators. It issues no token, so that it needs no secret that signs them.
func (db *Database) Administrators() *service.Administrators {
	return service.NewAdministrators(&repository.Accounts{DB: db.Database}, newHasher())
}

type rates struct {
	service   *service.Limits
	byUser    *ratelimit.Limiter
	byAddress *ratelimit.Addresses
}

// openLimits puts the rate limits into force. All instances share them in a real Redis; an embedded one is not asked.
func (i *Instance) openLimits(s servers) (r rates) {
	stored := hotcopy.NewLimits(s.redis)
	var shared *ratelimit.Shared
	if i.cfg.RedisURL != "" {
		shared = ratelimit.NewShared(stored.Take, i.registry, i.log)
		i.parts.OnCloseWithin(budget.Brief, "shared limits", shared.Close)
	}
	r.byUser, r.byAddress = ratelimit.New("user", 0, shared), ratelimit.NewAddresses(shared)
	kept := &repository.Limits{DB: s.db.Database}
	r.service = service.NewLimits(service.LimitDeps{
		Settings: model.Limits{User: i.cfg.RateUser, Addr: i.cfg.RateAddr},
		Read:     kept.Read,
		Store:    kept.Change,
		Announce: stored.Announce,
		Apply: func(limits model.Limits, deployment string) {
			r.byUser.Set(limits.User, deployment)
			r.byAddress.Set(limits.Addr, deployment)
		},
		Log: i.log,
	})
	starting, cancel := context.WithTimeout(context.Background(), budget.Step)
	defer cancel()
	r.service.Refresh(starting)
	i.parts.Loop("rate limits", budget.Brief, r.service.Run)
	i.parts.Loop("changes of rate limits", budget.Brief, func(ctx context.Context) {
		refresh := func() { r.service.Refresh(ctx) }
		stored.Watch(ctx, func(string) { refresh() }, refresh)
	})
	return r
}
