package app

import (
	"context"
	"net/http"

	"seckill/config"
	"seckill/handler"
	"seckill/internal/telemetry"
	"seckill/internal/token"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/service"
)

// mainHandler makes what the main listener serves: the API, or the health of an
// instance that only works. It completes the list of probes.
func (i *Instance) mainHandler(s servers, mode orderMode, async *AsyncParts, tokens *token.Authority) (http.Handler, error) {
	if i.cfg.Role == config.RoleWorker {
		i.health = service.NewHealth(i.probes...)
		return handler.NewHealthOnly(handler.Options{Health: i.health, Log: i.log, Metrics: i.registry})
	}
	changes := hotcopy.NewVoucherChanges(s.redis)
	locks, err := i.openLocks(s)
	if err != nil {
		return nil, err
	}
	metrics := telemetry.New(i.registry)
	var sale seller
	if async == nil {
		sale, err = i.syncSeller(s, metrics)
	} else {
		sale, err = i.asyncSeller(s, metrics, async)
	}
	if err != nil {
		return nil, err
	}
	i.onCloseWithin(cachePatience, "voucher copies", sale.cache.Close)
	i.background("voucher changes", lookPatience, func(ctx context.Context) error {
		return changes.Watch(ctx, sale.cache.Drop, sale.cache.DropAll)
	})
	orders := service.NewOrders(service.OrderDeps{
		Store: s.db.Orders, Copies: sale.cache, Announcer: changes, Locks: locks, LockWait: i.cfg.LockWait, Mode: mode.guard,
		Admission: sale.admission, Metrics: metrics, Log: i.log,
	})
	i.onCloseWithin(ordersPatience, "orders", orders.Close)
	i.leave = orders.StartDraining
	vouchers := service.NewVouchers(s.db.Vouchers, sale.cache, changes, i.log).SoldIn(mode.guard)
	if sale.stock != nil {
		vouchers = vouchers.Asynchronously(sale.stock)
	}

	i.health = service.NewHealth(i.probes...)
	return handler.New(handler.Options{
		Orders:         orders,
		Vouchers:       vouchers,
		Accounts:       service.NewAccounts(repository.NewAccounts(s.db.Database), newHasher(), tokens),
		Health:         i.health,
		Tokens:         tokens,
		RateUser:       handler.Rate(i.cfg.RateUser),
		RateAddr:       handler.Rate(i.cfg.RateAddr),
		TrustedProxies: i.cfg.TrustedProxies,
		Currency:       i.cfg.Currency,
		Log:            i.log,
		Metrics:        i.registry,
	})
}

// seller is what differs between the order modes of what is served.
type seller struct {
	cache     *service.VoucherCache
	admission *service.Admission // nil in sync
	stock     *service.HotStock  // nil in sync
}

// syncSeller sells from the database.
func (i *Instance) syncSeller(s servers, metrics *telemetry.Metrics) (sale seller, err error) {
	sale.cache, err = service.NewVoucherCache(s.db.Vouchers, s.db.Orders, metrics, i.log)
	return sale, err
}

// asyncSeller sells from the hot copies.
func (i *Instance) asyncSeller(s servers, metrics *telemetry.Metrics, async *AsyncParts) (sale seller, err error) {
	if sale.cache, err = service.NewHotVoucherCache(s.db.Vouchers, async.Hot, metrics, i.log); err != nil {
		return sale, err
	}
	sale.admission = service.NewAdmission(service.AdmissionDeps{
		Copies: async.Hot, Queue: async.Queue, Backlog: async.Queue, Notes: async.releases, Records: async.records,
		Rebuilds: async.Rebuilder, ScriptLocks: scriptLocks(i.cfg), BacklogMaxAge: i.cfg.BacklogMaxAge,
		Metrics: telemetry.NewAdmission(i.registry), Log: i.log,
	})
	sale.stock = service.NewHotStock(service.HotStockDeps{
		Intents: s.db.Vouchers, Vouchers: s.db.Vouchers, Copies: async.Hot, Rebuilds: async.Rebuilder, Auditor: async.Auditor,
		Log: i.log,
	})
	return sale, nil
}
