package command

import (
	"net/http"

	"seckill/config"
	"seckill/handler"
	"seckill/internal/telemetry"
	"seckill/internal/token"
	"seckill/repository"
	"seckill/service"
)

// mainHandler makes what the main listener serves: the API, or the health of an
// instance that only works. It completes the list of probes.
func (i *Instance) mainHandler(
	cfg config.Config, s servers, mode orderMode, async *backstage, tokens *token.Authority,
) (http.Handler, error) {
	if cfg.Role == roleWorker {
		i.health = service.NewHealth(i.probes...)
		return handler.NewHealthOnly(handler.Options{Health: i.health, Log: i.log, Metrics: i.registry})
	}
	metrics := telemetry.New(i.registry)
	stored, err := newOrderStore(cfg, s.db)
	if err != nil {
		return nil, err
	}
	vouchers := repository.NewVouchers(s.db, cfg.Currency)
	copies, err := newVoucherCache(vouchers, stored, async, metrics, i)
	if err != nil {
		return nil, err
	}
	i.onClose("voucher copies", within(copiesPatience, copies.Close))
	changes := repository.NewVoucherChanges(s.redis)
	i.watch(changes, copies)

	locks, err := i.openLocks(cfg, s.redis, s.db)
	if err != nil {
		return nil, err
	}
	selling := service.NewOrders(service.OrderDeps{
		Store: stored, Copies: copies, Announcer: changes, Locks: locks, LockWait: cfg.LockWait, Mode: mode.guard,
		Admission: i.admission(cfg, async), Metrics: metrics, Log: i.log,
	})
	i.onClose("orders", within(ordersPatience, selling.Close))
	i.leave = selling.StartDraining

	i.health = service.NewHealth(i.probes...)
	return handler.New(handler.Options{
		Orders:         selling,
		Vouchers:       i.lookAfter(vouchers, copies, changes, async).SoldIn(mode.guard),
		Accounts:       service.NewAccounts(repository.NewAccounts(s.db), newHasher(), tokens),
		Health:         i.health,
		Tokens:         tokens,
		RateUser:       handler.Rate(cfg.RateUser),
		RateAddr:       handler.Rate(cfg.RateAddr),
		TrustedProxies: cfg.TrustedProxies,
		Currency:       cfg.Currency,
		Log:            i.log,
		Metrics:        i.registry,
	})
}

// newVoucherCache keeps copies of what is sold: of the database's vouchers, or
// of the hot copies.
func newVoucherCache(
	vouchers *repository.Vouchers, orders *repository.Orders, async *backstage, metrics *telemetry.Metrics, i *Instance,
) (*service.VoucherCache, error) {
	if async == nil {
		return service.NewVoucherCache(vouchers, orders, metrics, i.log)
	}
	return service.NewHotVoucherCache(vouchers, async.hot, metrics, i.log)
}

// admission is how an asynchronous order is accepted; nil in sync.
func (i *Instance) admission(cfg config.Config, async *backstage) *service.Admission {
	if async == nil {
		return nil
	}
	return service.NewAdmission(service.AdmissionDeps{
		Copies: async.hot, Queue: async.queue, Backlog: async.queue, Notes: async.releases, Records: async.records,
		Rebuilds:    async.rebuilder,
		ScriptLocks: scriptLocks(cfg), BacklogMaxAge: cfg.BacklogMaxAge,
		Metrics: telemetry.NewAdmission(i.registry), Log: i.log,
	})
}

// lookAfter makes the service of vouchers, which in async looks after their hot
// copies too.
func (i *Instance) lookAfter(
	vouchers *repository.Vouchers, copies *service.VoucherCache, changes *repository.VoucherChanges, async *backstage,
) *service.Vouchers {
	all := service.NewVouchers(vouchers, copies, changes, i.log)
	if async == nil {
		return all
	}
	return all.Asynchronously(service.NewHotStock(service.HotStockDeps{
		Intents: vouchers, Vouchers: vouchers, Copies: async.hot, Rebuilds: async.rebuilder, Auditor: async.auditor,
		Log: i.log,
	}))
}
