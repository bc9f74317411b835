package service

import (
	"context"
	"log/slog"
	"time"

	"seckill/internal/ids"
	"seckill/model"
	"seckill/service/sale"
	"seckill/service/sale/cache"
)

// Vouchers looks after what is sold.
type Vouchers struct {
	VoucherDeps

	lists *lists
}

// VoucherDeps is what Vouchers works with.
type VoucherDeps struct {
	Store    VoucherStore
	Stock    Stock           // SyncStock, or a worker's
	Cache    *cache.Vouchers // this instance's
	Announce sale.Announce
	// Selling refuses changes while the database is sold from in another order mode:
	// this instance could not tell the hot copies, and does not know what is reserved.
	Selling sale.Selling
	Log     *slog.Logger
}

// NewVouchers makes the service.
func NewVouchers(deps VoucherDeps) *Vouchers {
	s := &Vouchers{VoucherDeps: deps}
	s.lists = newLists(s.list)
	return s
}

// SyncStock is the stock of the order mode sync: that of the database alone.
type SyncStock struct{ Store VoucherStore }

// Created is Stock's.
func (SyncStock) Created(context.Context, string) {}

// Patched is Stock's.
func (SyncStock) Patched(context.Context, model.Voucher) {}

// Change is Stock's.
func (s SyncStock) Change(
	ctx context.Context, id string, change model.StockChange, once model.Idempotency,
) (model.Voucher, error) {
	return s.Store.ChangeStock(ctx, id, change, once)
}

// Audit is Stock's.
func (s SyncStock) Audit(ctx context.Context, id string) (model.Audit, error) {
	return s.Store.Audit(ctx, id)
}

// Rebuild is Stock's.
func (SyncStock) Rebuild(context.Context, string, string) error {
	return model.Conflict("In the order mode sync there is no hot copy to rebuild.")
}

// changeable is nil when this instance may change a voucher.
func (s *Vouchers) changeable(id string) error {
	if !model.ValidID(id) {
		return model.NotFound("voucher")
	}
	return s.Selling()
}

// Get returns a voucher as it is now. Only administrators see drafts and archived ones.
func (s *Vouchers) Get(ctx context.Context, id string, admin bool) (model.Voucher, error) {
	if !model.ValidID(id) {
		return model.Voucher{}, model.NotFound("voucher")
	}
	v, err := s.Cache.Read(ctx, id)
	if err != nil {
		return model.Voucher{}, err
	}
	if !admin && !v.Buyable() {
		return model.Voucher{}, model.NotFound("voucher")
	}
	return v, nil
}

// List returns one page of vouchers, newest first: to the public as it was a moment ago,
// to administrators as it is.
func (s *Vouchers) List(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error) {
	if q.All {
		return s.list(ctx, q)
	}
	return s.lists.get(ctx, q)
}

func (s *Vouchers) list(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error) {
	return s.Cache.List(ctx, q, s.Store.List)
}

// Create makes a voucher, which is on sale from its BeginAt without further calls.
func (s *Vouchers) Create(ctx context.Context, v model.VoucherFields, by string, once model.Idempotency) (model.Voucher, error) {
	if v.State == "" {
		v.State = model.VoucherPublished
	}
	if err := v.Check(); err != nil {
		return model.Voucher{}, err
	}
	id, err := ids.New()
	if err != nil {
		return model.Voucher{}, err
	}
	created, err := s.Store.Create(ctx, id, v, by, once)
	s.lists.change()
	if err == nil {
		s.Stock.Created(ctx, created.ID)
	}
	return created, err
}

// Patch changes the fields given; every instance obeys within a second.
func (s *Vouchers) Patch(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error) {
	if err := s.changeable(id); err != nil {
		return model.Voucher{}, err
	}
	if err := patch.Check(); err != nil {
		return model.Voucher{}, err
	}
	if err := s.unsold(ctx, id, patch); err != nil {
		return model.Voucher{}, err
	}
	v, err := s.Store.Patch(ctx, id, patch)
	if err == nil {
		s.Stock.Patched(ctx, v)
	}
	s.changed(ctx, id)
	if err != nil {
		return model.Voucher{}, err
	}
	return s.Cache.Shown(ctx, v), nil
}

// unsold refuses other rules of a fair sale for a voucher of which units are reserved: their orders have no rows
// yet, which the store looks for.
func (s *Vouchers) unsold(ctx context.Context, id string, patch model.VoucherPatch) error {
	if patch.Groups == nil && patch.Early == nil && patch.Cooldown == nil && patch.Waitlist == nil && patch.Allocation == nil {
		return nil
	}
	now, err := s.Cache.Read(ctx, id)
	if err != nil {
		return err
	}
	changed := now.VoucherFields
	patch.Apply(&changed)
	if now.Stock != now.Remaining && !changed.SameRules(&now.VoucherFields) {
		return model.RulesFixed()
	}
	return nil
}

// ChangeStock changes the total ever offered, also in the middle of a sale.
func (s *Vouchers) ChangeStock(
	ctx context.Context, id string, change model.StockChange, once model.Idempotency,
) (model.Voucher, error) {
	if err := s.changeable(id); err != nil {
		return model.Voucher{}, err
	}
	if err := change.Check(); err != nil {
		return model.Voucher{}, err
	}
	v, err := s.Stock.Change(ctx, id, change, once)
	s.changed(ctx, id)
	if err != nil || once.Key != "" { // a repeated key gets the first answer again, not what is left by then
		return v, err
	}
	return s.Cache.Shown(ctx, v), nil
}

// Stats counts a voucher's units and orders.
func (s *Vouchers) Stats(ctx context.Context, id string) (model.Stats, error) {
	if !model.ValidID(id) {
		return model.Stats{}, model.NotFound("voucher")
	}
	return s.Cache.Stats(ctx, id, s.Store.Stats)
}

// Takings are what a voucher's orders cost together.
func (s *Vouchers) Takings(ctx context.Context, id string) (model.Takings, error) {
	return s.Store.Takings(ctx, id)
}

// Since is what has come since an instant, of all vouchers.
func (s *Vouchers) Since(ctx context.Context, at time.Time) (model.Day, error) {
	return s.Store.Since(ctx, at)
}

// Audit checks that a voucher's units and orders add up.
func (s *Vouchers) Audit(ctx context.Context, id string) (model.Audit, error) {
	if !model.ValidID(id) {
		return model.Audit{}, model.NotFound("voucher")
	}
	return s.Stock.Audit(ctx, id)
}

// Rebuild closes a voucher's hot copy for an administrator, and has it rebuilt in the
// background. In the order mode sync it answers CONFLICT: there is no hot copy.
func (s *Vouchers) Rebuild(ctx context.Context, id, adminID string) error {
	if err := s.Stock.Rebuild(ctx, id, adminID); err != nil {
		return err
	}
	s.changed(ctx, id)
	return nil
}

// changed drops the cache entries of a voucher, and the lists of this instance; those of
// others last for listMaxAge. It is called after failed changes too,
// because their COMMIT may have happened all the same.
func (s *Vouchers) changed(ctx context.Context, id string) {
	s.lists.change()
	s.Cache.Drop(id)
	s.Announce.Tell(ctx, s.Log, id)
}
