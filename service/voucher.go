package service

import (
	"context"
	"log/slog"
	"time"

	"seckill/internal/ids"
	"seckill/model"
)

// announceTimeout bounds the message that tells other instances of a change;
// without it they still learn of it by the age of their copies.
const announceTimeout = 500 * time.Millisecond

// VoucherStore keeps vouchers. All times are on its clock.
type VoucherStore interface {
	Create(ctx context.Context, id string, v model.NewVoucher, once model.Idempotency) (model.Voucher, error)
	Get(ctx context.Context, id string) (model.Voucher, error)
	List(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error)
	Patch(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error)
	ChangeStock(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (model.Voucher, error)
	Stats(ctx context.Context, id string) (model.Stats, error)
	Audit(ctx context.Context, id string) (model.Audit, error)
}

// Announcer tells every instance that its copy of a voucher is out of date.
type Announcer interface {
	Announce(ctx context.Context, voucherID string) error
}

// Vouchers looks after what is sold.
type Vouchers struct {
	store     VoucherStore
	copies    *VoucherCache
	announcer Announcer
	hot       *HotStock // nil in order mode sync
	mode      ModeWatch // nil: sold from in any mode
	log       *slog.Logger
}

// NewVouchers makes the service; copies is this instance's cache.
func NewVouchers(store VoucherStore, copies *VoucherCache, announcer Announcer, log *slog.Logger) *Vouchers {
	return &Vouchers{store: store, copies: copies, announcer: announcer, log: log}
}

// SoldIn makes changes be refused while the database is not sold from in this
// instance's order mode: it could not tell those who sell, and knows nothing of
// what they have reserved. It must be called before the first use.
func (s *Vouchers) SoldIn(mode ModeWatch) *Vouchers {
	s.mode = mode
	return s
}

// changeable is nil when this instance may change a voucher.
func (s *Vouchers) changeable(id string) error {
	if !model.ValidID(id) {
		return model.NotFound("voucher")
	}
	if s.mode == nil {
		return nil
	}
	return s.mode.Selling()
}

// Get returns a voucher as it is now. Drafts and archived ones exist for
// administrators only.
func (s *Vouchers) Get(ctx context.Context, id string, admin bool) (model.Voucher, error) {
	if !model.ValidID(id) {
		return model.Voucher{}, model.NotFound("voucher")
	}
	v, err := s.copies.Read(ctx, id)
	if err != nil {
		return model.Voucher{}, err
	}
	if !admin && !v.Buyable() {
		return model.Voucher{}, model.NotFound("voucher")
	}
	return v, nil
}

// List returns one page of vouchers, newest first.
func (s *Vouchers) List(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error) {
	phase := q.Phase
	if s.copies.hot() && (phase == model.PhaseLive || phase == model.PhaseSoldOut) {
		q.Phase, q.OnSale = "", true // which of the two, the hot copies know
	}
	for {
		page, err := s.store.List(ctx, q)
		if err != nil {
			return model.VoucherPage{}, err
		}
		page.Items = s.copies.asSold(ctx, page.Items, phase)
		if len(page.Items) > 0 || page.NextCursor == "" {
			return page, nil
		}
		q.Cursor = page.NextCursor // nobody wants an empty page with more behind it
	}
}

// Create puts a voucher up; it is on sale at its BeginAt with nothing else to do.
func (s *Vouchers) Create(ctx context.Context, v model.NewVoucher, once model.Idempotency) (model.Voucher, error) {
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
	created, err := s.store.Create(ctx, id, v, once)
	if err == nil && s.hot != nil {
		s.hot.load(ctx, created.ID)
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
	v, err := s.store.Patch(ctx, id, patch)
	if err == nil && s.hot != nil {
		s.hot.apply(ctx, v)
	}
	s.changed(ctx, id)
	if err != nil {
		return model.Voucher{}, err
	}
	return s.copies.shown(ctx, v), nil
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
	v, err := s.changeStock(ctx, id, change, once)
	s.changed(ctx, id)
	if err != nil || once.Key != "" { // a repeated key gets the first answer again, whatever is left by then
		return v, err
	}
	return s.copies.shown(ctx, v), nil
}

// Stats counts a voucher's units and orders.
func (s *Vouchers) Stats(ctx context.Context, id string) (model.Stats, error) {
	if !model.ValidID(id) {
		return model.Stats{}, model.NotFound("voucher")
	}
	return s.copies.stats(ctx, id, s.store.Stats)
}

// Audit checks that a voucher's units and orders add up.
func (s *Vouchers) Audit(ctx context.Context, id string) (model.Audit, error) {
	if !model.ValidID(id) {
		return model.Audit{}, model.NotFound("voucher")
	}
	if s.hot != nil {
		return s.hot.auditor.Audit(ctx, id)
	}
	return s.store.Audit(ctx, id)
}

// changed drops the copies of a voucher here and everywhere. It is called
// after failed changes too: their COMMIT may have happened all the same.
func (s *Vouchers) changed(ctx context.Context, id string) {
	announceChange(ctx, s.copies, s.announcer, s.log, id)
}

// announceChange drops the copies of a voucher here and everywhere.
func announceChange(ctx context.Context, copies *VoucherCache, announcer Announcer, log *slog.Logger, id string) {
	copies.Drop(id)
	if announcer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	if err := announcer.Announce(ctx, id); err != nil {
		log.WarnContext(ctx, "other instances learn of a change by the age of their copies only",
			slog.String("voucher_id", id), slog.Any("error", err))
	}
}
