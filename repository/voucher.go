package repository

import (
	"context"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"seckill/model"
)

// Vouchers keeps vouchers. Whatever changes a voucher's row makes its version
// grow: one version, one row.
type Vouchers struct {
	db       *Database
	currency string
}

// NewVouchers makes vouchers in a currency (ISO 4217); existing ones keep theirs.
func NewVouchers(db *Database, currency string) *Vouchers {
	return &Vouchers{db: db, currency: currency}
}

// Create makes a voucher. With an idempotency key it happens once.
func (v *Vouchers) Create(ctx context.Context, id string, asked model.NewVoucher, once model.Idempotency) (model.Voucher, error) {
	voucher := model.Voucher{
		ID: id, Title: asked.Title, Description: asked.Description,
		Price: asked.Price, FaceValue: asked.FaceValue, Currency: v.currency,
		Stock: asked.Stock, Remaining: asked.Stock,
		BeginAt: stored(asked.BeginAt), EndAt: stored(asked.EndAt),
		State: asked.State, Version: 1, Revision: 1,
	}
	if voucher.State == "" {
		voucher.State = model.VoucherPublished
	}
	if !voucher.BeginAt.Before(voucher.EndAt) {
		return model.Voucher{}, windowError()
	}
	return v.once(ctx, "create voucher "+id, once, func(tx *gorm.DB, first func() (*answer, error)) (answer, error) {
		if given, err := first(); err != nil || given != nil {
			return deref(given), err
		}
		// The mode's lock: a database is adopted only while it has no voucher.
		_, now, err := lockMode(tx, v.db.dialect)
		if err != nil {
			return answer{}, err
		}
		voucher.CreatedAt = stored(now.Time)
		if err := tx.Create(&voucher).Error; err != nil {
			return answer{}, err
		}
		return answerOf(voucher.At(now.Time)), nil
	})
}

// Get reads one voucher in any state, as of the database's clock; NOT_FOUND
// when there is none.
func (v *Vouchers) Get(ctx context.Context, id string) (model.Voucher, error) {
	if err := possible(id); err != nil {
		return model.Voucher{}, err
	}
	var row voucherRow
	err := v.db.read(ctx, "get voucher "+id, func(db *gorm.DB) error {
		return notFound(selectVouchers(db, v.db.dialect).Where("id = ?", id).Take(&row).Error, "voucher")
	})
	if err != nil {
		return model.Voucher{}, err
	}
	return row.view(), nil
}

// GetMany reads vouchers by id; absent ones are left out.
func (v *Vouchers) GetMany(ctx context.Context, ids []string) (map[string]model.Voucher, error) {
	vouchers := make(map[string]model.Voucher, len(ids))
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !model.ValidID(id) })
	if len(ids) == 0 {
		return vouchers, nil
	}
	err := v.db.read(ctx, fmt.Sprintf("get %d vouchers", len(ids)), func(db *gorm.DB) error {
		rows, err := readVouchers(selectVouchers(db, v.db.dialect), ids)
		for id, row := range rows {
			vouchers[id] = row.view()
		}
		return err
	})
	return vouchers, err
}

// IDs lists every voucher, oldest first.
func (v *Vouchers) IDs(ctx context.Context) ([]string, error) {
	var ids []string
	err := v.db.read(ctx, "list voucher ids", func(db *gorm.DB) error {
		return db.Table("vouchers").Order("created_at, id").Pluck("id", &ids).Error
	})
	return ids, err
}

// List reads one page of vouchers, newest first. A cursor that is none of ours
// and an unknown phase are VALIDATION.
func (v *Vouchers) List(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error) {
	after, err := model.ParseCursor(q.Cursor)
	if err != nil {
		return model.VoucherPage{}, err
	}
	limit := model.PageSize(q.Limit)
	var rows []voucherRow
	err = v.db.read(ctx, "list vouchers", func(db *gorm.DB) error {
		query := newestFirst(selectVouchers(db, v.db.dialect), after, limit+1)
		if !q.All {
			query = query.Where("state IN ?", []model.VoucherState{model.VoucherPublished, model.VoucherPaused})
		}
		query, err := v.inPhase(query, q.Phase)
		if err != nil {
			return err
		}
		if q.OnSale {
			query = v.onSale(query)
		}
		return query.Find(&rows).Error
	})
	if err != nil {
		return model.VoucherPage{}, err
	}
	page := model.VoucherPage{Items: make([]model.Voucher, 0, len(rows))}
	for i, row := range rows {
		if i == limit {
			last := rows[limit-1]
			page.NextCursor = model.Cursor{At: last.CreatedAt, ID: last.ID}.String()
			break
		}
		page.Items = append(page.Items, row.view())
	}
	return page, nil
}

// inPhase is model.Voucher.PhaseAt in SQL.
func (v *Vouchers) inPhase(query *gorm.DB, phase model.Phase) (*gorm.DB, error) {
	if phase == "" {
		return query, nil
	}
	now := v.db.dialect.now
	if phase == model.PhaseEnded {
		return query.Where("end_at <= " + now), nil
	}
	query = query.Where("end_at > " + now)
	if phase == model.PhasePaused {
		return query.Where("state = ?", model.VoucherPaused), nil
	}
	switch phase {
	case model.PhaseUpcoming:
		return query.Where("state <> ?", model.VoucherPaused).Where("begin_at > " + now), nil
	case model.PhaseSoldOut:
		return v.onSale(query).Where("remaining <= 0"), nil
	case model.PhaseLive:
		return v.onSale(query).Where("remaining > 0"), nil
	case model.PhaseEnded, model.PhasePaused:
	}
	return nil, model.Invalid("query.phase", "must be one of upcoming, live, sold_out, ended, paused")
}

// onSale selects what is live or sold out.
func (v *Vouchers) onSale(query *gorm.DB) *gorm.DB {
	now := v.db.dialect.now
	return query.Where("state <> ? AND begin_at <= "+now+" AND end_at > "+now, model.VoucherPaused)
}

// possible is NOT_FOUND for an id that cannot exist. SQL must not be asked: it
// ignores blanks at the end, and refuses to compare ASCII with other letters.
func possible(id string) error {
	if !model.ValidID(id) {
		return fmt.Errorf("voucher %q: %w", id, model.NotFound("voucher"))
	}
	return nil
}

func windowError() error {
	return model.Invalid("body.end_at", "must be after begin_at")
}

// deref is the zero answer for nil.
func deref(a *answer) answer {
	if a == nil {
		return answer{}
	}
	return *a
}
