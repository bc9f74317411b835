package service

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"seckill/model"
	"seckill/service/sale/cache"
)

// People tells what is held of a person's user id, and erases it. A command, which sells nothing, has nothing from
// Copies on.
type People struct {
	Store interface { // *repository.People
		Places(ctx context.Context, userID string) ([]model.WaitlistPlace, []model.Entry, error)
		Events(ctx context.Context, orderIDs []string) ([]model.Event, error)
		Erase(ctx context.Context, userID, by string) (*model.Account, error)
	}
	Orders interface { // *repository.Orders
		List(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
		Detail(ctx context.Context, orderID string) (model.OrderDetail, error)
	}
	Account    func(ctx context.Context, id string) (model.Account, error)
	PaymentsOf func(ctx context.Context, orderID string) ([]model.Payment, error)
	Refunds    func(ctx context.Context, q model.RefundQuery) (model.RefundPage, error)
	AdminLog   func(ctx context.Context, q model.AdminLogQuery) (model.AdminLogPage, error)
	Log        *slog.Logger

	// Copies are the hot copies, whose orders may have no row yet; nil: there are none. Selling lists those, too.
	Copies  func(ctx context.Context) ([]model.EpochRecord, error)
	Selling func(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	Leave   func(ctx context.Context, userID, voucherID string) error // the waitlist
	Cache   *cache.Accounts
}

// Data is everything that is held of a user id; of one that nobody has ever used it is empty.
func (s *People) Data(ctx context.Context, userID string) (data model.PersonData, err error) {
	data = model.PersonData{UserID: userID, Orders: []model.PersonOrder{}, Events: []model.PersonEvent{}, Log: []model.AdminChange{}}
	account, err := s.Account(ctx, userID)
	switch {
	case err == nil:
		data.Account, data.Groups, data.CreatedAt = &account, account.Groups, &account.CreatedAt
	case model.CodeOf(err) != model.CodeNotFound:
		return data, err
	}
	waits, entries, err := s.Store.Places(ctx, userID)
	if err != nil {
		return data, err
	}
	data.Waitlist, data.Entries = append([]model.WaitlistPlace{}, waits...), append([]model.Entry{}, entries...)
	var ids []string
	err = s.each(ctx, userID, func(order model.PersonOrder) error {
		data.Orders, ids = append(data.Orders, order), append(ids, order.ID)
		return s.log(ctx, &data, model.AdminLogQuery{Subject: order.ID})
	})
	if err != nil {
		return data, err
	}
	events, err := s.Store.Events(ctx, ids)
	for _, e := range events {
		data.Events = append(data.Events, model.PersonEvent{
			Type: e.Type, Subject: e.Subject, HappenedAt: e.HappenedAt, Data: json.RawMessage(e.Data),
		})
	}
	for _, q := range []model.AdminLogQuery{{Subject: userID}, {Actor: userID}} {
		if err == nil {
			err = s.log(ctx, &data, q)
		}
	}
	return data, err
}

func (s *People) each(ctx context.Context, userID string, yield func(model.PersonOrder) error) error {
	for q := (model.OrderQuery{UserID: userID, Limit: 100}); ; {
		page, err := s.Orders.List(ctx, q)
		if err != nil {
			return err
		}
		for _, row := range page.Items {
			var order model.PersonOrder
			if order.OrderDetail, err = s.Orders.Detail(ctx, row.ID); err != nil {
				return err
			}
			if order.Payments, err = s.PaymentsOf(ctx, row.ID); err != nil {
				return err
			}
			refunds, err := s.Refunds(ctx, model.RefundQuery{OrderID: row.ID})
			if err != nil {
				return err
			}
			order.Payments, order.Refunds = append([]model.Payment{}, order.Payments...), append([]model.Refund{}, refunds.Items...)
			if err := yield(order); err != nil {
				return err
			}
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			return nil
		}
	}
}

func (s *People) log(ctx context.Context, data *model.PersonData, q model.AdminLogQuery) error {
	for q.Limit = 100; ; {
		page, err := s.AdminLog(ctx, q)
		data.Log = append(data.Log, page.Items...)
		if q.Cursor = page.NextCursor; err != nil || q.Cursor == "" {
			return err
		}
	}
}

// Erase replaces a user's id by a pseudonym wherever it is held, and ends the account with its tokens. It may be
// repeated, and goes on where a call was broken off. CONFLICT: live orders, or an entry that is not drawn yet; or the
// administrator's own id. UNAVAILABLE: it is not known whether an order is processing.
func (s *People) Erase(ctx context.Context, userID, adminID string) error {
	if userID == adminID {
		return model.Conflict("Another administrator has to erase you: the log names who did it.")
	}
	if err := s.processing(ctx, userID); err != nil {
		return err
	}
	waits, _, err := s.Store.Places(ctx, userID)
	for _, place := range waits {
		if err == nil && place.OrderID == "" && s.Leave != nil {
			err = s.Leave(ctx, userID, place.VoucherID)
		}
	}
	if err != nil && model.CodeOf(err) != model.CodeNotFound {
		return fmt.Errorf("leave the waitlists: %w", err)
	}
	account, err := s.Store.Erase(ctx, userID, adminID)
	if err != nil {
		return err
	}
	if account != nil && s.Cache != nil {
		s.Cache.Note(*account)
	}
	s.Log.InfoContext(ctx, "a user was erased", slog.String("by", adminID))
	return nil
}

// processing refuses while an order of the user has no row yet. UNAVAILABLE: there may be one.
func (s *People) processing(ctx context.Context, userID string) error {
	if s.Copies == nil {
		return nil
	}
	copies, err := s.Copies(ctx)
	if err != nil {
		return err
	}
	for _, of := range copies {
		page, err := s.Selling(ctx, model.OrderQuery{
			UserID: userID, VoucherID: of.VoucherID, Status: model.OrderProcessing, Limit: 1,
		})
		if err != nil {
			return err
		}
		if len(page.Items) > 0 {
			return model.StillLive([]string{page.Items[0].ID})
		}
	}
	return nil
}
