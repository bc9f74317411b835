package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"seckill/model"
)

var errData = fmt.Errorf("%w: 1366: incorrect value", model.ErrDataRefused)

type dbSide struct{ *stage }

type modeSide struct{ *stage }

func (m modeSide) Read(context.Context) (model.ModeRecord, error) {
	err := m.step("mode.read")
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mode, err
}

func (m modeSide) Change(_ context.Context, to model.OrderMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mode.Mode = to
	return nil
}

func (d dbSide) Kept(ctx context.Context) ([]model.EpochRecord, error) { return d.Watched(ctx) }

func (d dbSide) Persist(_ context.Context, batch []model.Reservation) ([]model.Outcome, error) {
	if err := d.step("db.persist"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range batch {
		if d.poison[r.ID] && !d.undecided(r) { // a row would be inserted
			return nil, fmt.Errorf("insert: %w", errData)
		}
	}
	outcomes := make([]model.Outcome, len(batch))
	for i, r := range batch {
		outcomes[i] = d.decide(r)
	}
	return outcomes, nil
}

func (d dbSide) decide(r model.Reservation) model.Outcome {
	if row, ok := d.rows[r.ID]; ok {
		return model.Outcome{Order: row}
	}
	if err := d.unfit[r.ID]; err != nil {
		return model.Outcome{Err: err}
	}
	if r.VoucherID != d.voucher.ID {
		return model.Outcome{Err: model.NotFound("voucher")}
	}
	if d.undecided(r) {
		return model.Outcome{Err: model.Unavailable("replaced", model.ErrCopyReplaced)}
	}
	if d.superseded(r) {
		return model.Outcome{Order: d.close(r.Order, model.OrderFailed, model.ReasonSuperseded), Created: true}
	}
	for _, other := range d.rows {
		if other.Live() && other.UserID == r.UserID {
			return model.Outcome{Order: d.close(r.Order, model.OrderFailed, model.ReasonAlreadyOrdered), Created: true}
		}
	}
	if d.voucher.Remaining == 0 {
		return model.Outcome{Order: d.close(r.Order, model.OrderFailed, model.ReasonSoldOut), Created: true}
	}
	d.voucher.Remaining--
	d.voucher.Version++
	r.Status = model.OrderUnpaid
	d.rows[r.ID] = r.Order
	return model.Outcome{Order: r.Order, Created: true}
}

func (d dbSide) superseded(r model.Reservation) bool {
	before := r.Epoch == d.record.OpenEpoch && (d.record.Barrier == nil || r.Sequence <= *d.record.Barrier)
	return r.Epoch < d.record.Epoch && !before
}

// undecided says that a hot copy may hold a superseded order.
func (d dbSide) undecided(r model.Reservation) bool {
	return d.superseded(r) && (r.Absent == nil || *r.Absent != d.record.OpenEpoch)
}

func (d dbSide) Fail(_ context.Context, r model.Reservation, reason string) (model.Order, error) {
	if err := d.step("db.fail"); err != nil {
		return model.Order{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if row, ok := d.rows[r.ID]; ok {
		return row, nil
	}
	return d.close(r.Order, model.OrderFailed, reason), nil
}

func (d dbSide) Find(_ context.Context, ids []string) (map[string]model.Order, error) {
	err := d.step("db.find")
	d.mu.Lock()
	defer d.mu.Unlock()
	found := map[string]model.Order{}
	for _, id := range ids {
		if row, ok := d.rows[id]; ok {
			found[id] = row
		}
	}
	return found, err
}

func (d dbSide) Failed(ctx context.Context, ids []string) (map[string]model.Order, error) {
	found, err := d.Find(ctx, ids)
	maps.DeleteFunc(found, func(_ string, row model.Order) bool { return row.Status != model.OrderFailed })
	return found, err
}

func (d dbSide) Live(_ context.Context, _ string, yield func(model.Order) error) error {
	var failed error
	for _, row := range d.all() {
		if row.Live() {
			failed = errors.Join(failed, yield(row))
		}
	}
	return failed
}

func (d dbSide) all() []model.Order {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.rows))
}

func (d dbSide) After(_ context.Context, last model.Release, limit int) ([]model.Release, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	order := func(a, b model.Release) int {
		return cmp.Or(cmp.Compare(a.VoucherID, b.VoucherID), cmp.Compare(a.ID, b.ID))
	}
	slices.SortFunc(d.outbox, order)
	var page []model.Release
	for _, release := range d.outbox {
		if order(release, last) > 0 && len(page) < limit {
			page = append(page, release)
		}
	}
	return page, nil
}

func (d dbSide) Done(_ context.Context, ids []int64) error {
	return d.done(func(r model.Release) bool { return slices.Contains(ids, r.ID) })
}

func (d dbSide) DoneOrders(_ context.Context, ids []string) error {
	return d.done(func(r model.Release) bool { return slices.Contains(ids, r.OrderID) })
}

func (d dbSide) done(which func(model.Release) bool) error {
	if err := d.step("db.done"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outbox = slices.DeleteFunc(d.outbox, which)
	return nil
}

func (d dbSide) GetMany(context.Context, []string) (map[string]model.Voucher, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return map[string]model.Voucher{"v1": d.voucher.At(time.Now())}, nil
}

func (d dbSide) Audit(_ context.Context, id string) (model.Audit, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	audit := model.Audit{VoucherID: id, Mode: d.mode.Mode, Drift: []model.DriftedOrder{}}
	audit.Database = model.AuditDatabase{Stock: d.voucher.Stock, Remaining: d.voucher.Remaining}
	for _, row := range d.rows {
		if row.Live() {
			audit.Database.LiveOrders++
		}
	}
	audit.Balanced = audit.Database.Stock == audit.Database.Remaining+audit.Database.LiveOrders
	return audit, nil
}

func (d dbSide) now() model.EpochRecord {
	record := d.record
	record.Now, record.Revision, record.Version = time.Now(), d.voucher.Revision, d.voucher.Version
	record.Taken, record.OnSale = d.voucher.Stock-d.voucher.Remaining, d.voucher.Refusal(time.Now()) == nil
	return record
}

func (d dbSide) Read(context.Context, []string) (map[string]model.EpochRecord, error) {
	err := d.step("db.read")
	d.mu.Lock()
	defer d.mu.Unlock()
	return map[string]model.EpochRecord{"v1": d.now()}, err
}

func (d dbSide) Watched(context.Context) ([]model.EpochRecord, error) {
	err := d.step("db.watched")
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unwatched {
		return nil, err
	}
	return []model.EpochRecord{d.now()}, err
}

func (d dbSide) Close(_ context.Context, _ string, from int64, _ string) (model.EpochRecord, error) {
	if err := d.step("db.close"); err != nil {
		return model.EpochRecord{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.record.Epoch != from {
		return model.EpochRecord{}, model.ErrSuperseded
	}
	d.record.Epoch++
	d.record.Barrier = nil
	d.heard()
	d.voucher.Revision++
	return d.now(), nil
}

func (d dbSide) heard() {
	now := time.Now()
	d.record.Progress = &now
}

func (d dbSide) building(name string, epoch int64, do func()) error {
	if err := d.step(name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.record.Epoch != epoch || d.record.Open() {
		return model.ErrSuperseded
	}
	do()
	return nil
}

func (d dbSide) SetBarrier(_ context.Context, _ string, epoch int64, barrier uint64) error {
	return d.building("db.barrier", epoch, func() { d.record.Barrier = &barrier; d.voucher.Revision++; d.heard() })
}

func (d dbSide) Progress(_ context.Context, _ string, epoch int64) error {
	return d.building("db.progress", epoch, d.heard)
}

func (d dbSide) Open(_ context.Context, _ string, epoch int64) error {
	return d.building("db.open", epoch, func() { d.record.OpenEpoch, d.record.Barrier = epoch, nil })
}

func (d dbSide) Snapshot(_ context.Context, _ string, epoch int64, work func(model.Snapshot) error) error {
	var live []model.Order
	var cooling []model.Cooling
	snapshot := model.Snapshot{
		Live:    func(_ context.Context, yield func([]model.Order) error) error { return inPages(live, yield) },
		Cooling: func(_ context.Context, yield func([]model.Cooling) error) error { return inPages(cooling, yield) },
	}
	err := d.building("db.snapshot", epoch, func() {
		snapshot.Voucher = d.voucher
		for _, row := range d.rows {
			if row.Live() {
				live = append(live, row)
			}
			if until := row.CooldownUntil; until != nil && until.After(time.Now()) {
				cooling = append(cooling, model.Cooling{UserID: row.UserID, Until: *until})
			}
		}
	})
	if err != nil {
		return err
	}
	return work(snapshot)
}

func inPages[T any](all []T, yield func([]T) error) error {
	for page := range slices.Chunk(all, 2) {
		if err := yield(page); err != nil {
			return err
		}
	}
	return nil
}

func (d dbSide) IntendStock(
	_ context.Context, id string, change model.StockChange, _ model.Idempotency,
) (model.StockIntent, bool, error) {
	if err := d.step("db.intendstock"); err != nil {
		return model.StockIntent{}, false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	stock := d.voucher.Stock
	if change.Stock != nil {
		stock = *change.Stock
	} else {
		stock += *change.Delta
	}
	if stock >= d.voucher.Stock || stock < d.voucher.Stock-d.voucher.Remaining {
		return model.StockIntent{}, false, nil
	}
	intent := model.StockIntent{VoucherID: id, Stock: stock, Revision: d.voucher.Revision, CreatedAt: time.Now()}
	d.intents = append(d.intents, intent)
	return intent, true, nil
}

func (d dbSide) DropIntent(_ context.Context, intent model.StockIntent) error {
	if err := d.step("db.dropintent"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, known := range d.intents {
		if known == intent {
			d.intents = append(d.intents[:n:n], d.intents[n+1:]...)
			d.voucher.Revision++
			return nil
		}
	}
	return nil
}

func (d dbSide) Intents(_ context.Context, olderThan time.Duration) ([]model.StockIntent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var old []model.StockIntent
	for _, intent := range d.intents {
		if !intent.CreatedAt.Add(olderThan).After(time.Now()) {
			old = append(old, intent)
		}
	}
	return old, nil
}

func (d dbSide) ChangeStock(
	_ context.Context, _ string, change model.StockChange, _ model.Idempotency,
) (model.Voucher, error) {
	if err := d.step("db.changestock"); err != nil {
		return model.Voucher{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	difference := *change.Stock - d.voucher.Stock
	if d.voucher.Remaining+difference < 0 {
		return model.Voucher{}, model.Conflict("More is sold.")
	}
	d.voucher.Stock += difference
	d.voucher.Remaining += difference
	d.voucher.Revision++
	d.intents = nil
	return d.voucher, nil
}
