package repository

import (
	"context"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository/sqldb"
)

// TestTheDialectSaysHowRowsAreShared: no statement does by itself, because TiDB refuses LOCK IN SHARE MODE.
func TestTheDialectSaysHowRowsAreShared(t *testing.T) {
	t.Parallel()
	d := sqldb.Dialect{Share: " as the dialect says"}
	check.Equal(t, "the order mode", orderMode(d), "(SELECT mode FROM order_mode WHERE id = 1 as the dialect says)")
	for _, file := range check.Value(statements.ReadDir("sql"))(t) {
		if statement := sqlOf(d, strings.TrimSuffix(file.Name(), ".sql")); strings.Contains(statement, " SHARE") {
			t.Errorf("%s: %s", file.Name(), statement)
		}
	}
}

// TestRule steps through the edges of the window and the precedence of refusals.
func TestRule(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	end := begin.Add(time.Hour)
	live := model.Order{ID: "1.v", VoucherID: "v", UserID: "u", Status: model.OrderPaid}
	for name, test := range map[string]struct {
		now      time.Time
		state    model.VoucherState
		left     int64
		absent   bool
		existing []model.Order
		admitted bool
		early    bool
		cooling  time.Duration // for so long from now on
		want     model.Code
	}{
		"a microsecond early":                 {now: begin.Add(-resolution), left: 1, want: model.CodeNotStarted},
		"at the beginning":                    {now: begin, left: 1},
		"early":                               {now: begin.Add(-time.Minute), early: true, left: 1},
		"early, a microsecond too early":      {now: begin.Add(-time.Minute - resolution), early: true, left: 1, want: model.CodeNotStarted},
		"not early":                           {now: begin.Add(-time.Minute), left: 1, want: model.CodeNotStarted},
		"early, at the end":                   {now: end, early: true, left: 1, want: model.CodeEnded},
		"a microsecond before the end":        {now: end.Add(-resolution), left: 1},
		"at the end":                          {now: end, left: 1, want: model.CodeEnded},
		"paused":                              {now: begin, state: model.VoucherPaused, left: 1, want: model.CodePaused},
		"paused before the beginning":         {now: begin.Add(-resolution), state: model.VoucherPaused, left: 1, want: model.CodePaused},
		"paused and ended":                    {now: end, state: model.VoucherPaused, left: 1, want: model.CodeEnded},
		"draft":                               {now: begin, state: model.VoucherDraft, left: 1, want: model.CodeNotFound},
		"archived and ended":                  {now: end, state: model.VoucherArchived, left: 1, want: model.CodeNotFound},
		"absent":                              {now: begin, absent: true, want: model.CodeNotFound},
		"nothing left":                        {now: begin, want: model.CodeSoldOut},
		"nothing left before the beginning":   {now: begin.Add(-resolution), want: model.CodeNotStarted},
		"has one":                             {now: begin, left: 1, existing: []model.Order{live}, want: model.CodeAlreadyOrdered},
		"has one, nothing left":               {now: begin, existing: []model.Order{live}, want: model.CodeAlreadyOrdered},
		"has one, ended":                      {now: end, existing: []model.Order{live}, want: model.CodeEnded},
		"admitted, ended":                     {now: end, left: 1, admitted: true},
		"admitted, paused":                    {now: begin, state: model.VoucherPaused, left: 1, admitted: true},
		"admitted, nothing left":              {now: end, admitted: true, want: model.CodeSoldOut},
		"admitted, has one":                   {now: end, admitted: true, left: 1, existing: []model.Order{live}, want: model.CodeAlreadyOrdered},
		"admitted, absent":                    {now: begin, absent: true, admitted: true, want: model.CodeNotFound},
		"cooling down":                        {now: begin, cooling: resolution, left: 1, want: model.CodeCoolingDown},
		"cooling down until now":              {now: begin, cooling: 0, left: 1},
		"cooling down, nothing left":          {now: begin, cooling: time.Minute, want: model.CodeCoolingDown},
		"cooling down, ended":                 {now: end, cooling: time.Minute, left: 1, want: model.CodeEnded},
		"cooling down, has one":               {now: begin, cooling: time.Minute, left: 1, existing: []model.Order{live}, want: model.CodeAlreadyOrdered},
		"somebody else's closed one":          {now: begin, left: 1, existing: []model.Order{{ID: "1.v", VoucherID: "v", UserID: "u", Status: model.OrderCanceled}}},
		"this id, whatever the window":        {now: end, existing: []model.Order{{ID: "2.v", VoucherID: "v", UserID: "u", Status: model.OrderExpired}}},
		"this id, of somebody else":           {now: begin, left: 1, existing: []model.Order{{ID: "2.v", VoucherID: "v", UserID: "x"}}, want: model.CodeConflict},
		"another voucher's order of the user": {now: begin, left: 1, existing: []model.Order{{ID: "1.w", VoucherID: "w", UserID: "u", Status: model.OrderUnpaid}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			voucher := &voucherRow{
				Voucher: model.Voucher{ID: "v", VoucherFields: model.VoucherFields{
					State: test.state, Stock: 9, Price: 1,
					Remaining: test.left, BeginAt: begin, EndAt: end,
					Early: model.Early{From: new(begin.Add(-time.Minute))},
				}},
				Now:     clock{test.now},
				cooling: map[string]cooled{"u": {Until: clock{test.now.Add(test.cooling)}}, "x": {Until: clock{end}}},
			}
			if test.state == "" {
				voucher.State = model.VoucherPublished
			}
			if test.absent {
				voucher = nil
			}
			order := model.Order{ID: "2.v", VoucherID: "v", UserID: "u", Early: test.early}
			if test.admitted {
				order.CreatedAt = begin.Add(time.Minute)
			}
			got := rule([]model.Reservation{{Order: order}}, voucher, test.existing, terms{time.Minute, "", nil})
			if test.want == "" {
				check.That(t, got.outcomes[0].Err == nil, "refused: %v", got.outcomes[0].Err)
				return
			}
			check.That(t, model.CodeOf(got.outcomes[0].Err) == test.want && len(got.rows) == 0,
				"outcome %+v with %d rows, want %s", got.outcomes[0], len(got.rows), test.want)
		})
	}
}

// TestRuleWithinABatch: the first of each kind counts.
func TestRuleWithinABatch(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	voucher := &voucherRow{
		Voucher: model.Voucher{ID: "v", VoucherFields: model.VoucherFields{
			State: model.VoucherPublished, Stock: 2, Price: 1,
			Remaining: 2, BeginAt: now, EndAt: now.Add(time.Hour),
		}},
		Now: clock{now},
	}
	order := func(id, user string) model.Reservation {
		return model.Reservation{Order: model.Order{ID: id + ".v", VoucherID: "v", UserID: user}}
	}
	got := rule([]model.Reservation{
		order("1", "a"), order("1", "a"), order("2", "a"), order("3", "b"), order("4", "c"), order("4", "c"),
		order("1", "x"),
	}, voucher, nil, terms{time.Minute, "", nil})
	want := []model.Code{"", "", model.CodeAlreadyOrdered, "", model.CodeSoldOut, model.CodeSoldOut, model.CodeConflict}
	for i, outcome := range got.outcomes {
		code := model.Code("")
		if outcome.Err != nil {
			code = model.CodeOf(outcome.Err)
		}
		check.That(t, code == want[i] && outcome.Created == (i == 0 || i == 3), "%d: %+v, want %q", i, outcome, want[i])
	}
	check.That(t, len(got.rows) == 2 && got.exhausted && got.outcomes[1].Order.ID == "1.v", "ruling %+v", got)
}

// LookFirst makes every transaction look for existing rows first.
func (o *Orders) LookFirst() { o.readFirst.Store(1 << 40) }

// SlowTaking is after which it is found out whose row a statement waited for.
const SlowTaking = budget.Glance

// MoveTogether makes one move of each order in a single transaction, whatever the moves are.
func MoveTogether(
	ctx context.Context, db *sqldb.Database, orders []model.Order, to []model.OrderStatus, by []model.Mover,
) ([]model.Order, error) {
	changes := make([]statusChange, len(orders))
	for i, o := range orders {
		move, err := model.Move(o.Status, to[i], by[i])
		if err != nil {
			return nil, err
		}
		changes[i] = statusChange{order: o, move: move, actor: "test"}
	}
	var moved []model.Order
	err := db.Write(ctx, "move orders", func(tx *gorm.DB) error {
		var err error
		moved, err = moveOrders(tx, db, changes)
		return err
	})
	return moved, err
}
