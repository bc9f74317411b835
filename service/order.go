package service

import (
	"context"
	"errors"
	"log/slog"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/internal/vouchercode"
	"seckill/model"
	"seckill/service/sale"
	"seckill/service/sale/cache"
)

// Redemptions uses up the codes that buyers show.
type Redemptions struct {
	store RedemptionStore
	codes *Codes
	order func(ctx context.Context, orderID string) (model.OrderDetail, error) // also one that has no row yet
	wrong *backoff.Failures                                                    // by administrator
}

// NewRedemptions makes the service. Without codes it answers UNAVAILABLE. Nobody can guess a code; the limit on wrong
// ones makes a broken till noticed: twenty at once are a bad day, one every five seconds is a person who mistypes.
func NewRedemptions(
	store RedemptionStore, codes *Codes, order func(ctx context.Context, orderID string) (model.OrderDetail, error),
) *Redemptions {
	policy := backoff.Policy{Free: 20, First: budget.Look, Longest: budget.Settled, Forget: 5 * time.Second}
	return &Redemptions{store: store, codes: codes, order: order, wrong: backoff.New(policy, maxRemembered, time.Now)}
}

// Redeem uses a typed code once and returns its order. VALIDATION: mistyped; NOT_FOUND: no order has it; ILLEGAL_STATE:
// it was used or refunded; RATE_LIMITED: the administrator has typed many wrong ones. NOT_ELIGIBLE, CODE_NOT_YET_VALID,
// CODE_EXPIRED: as of the voucher.
func (s *Redemptions) Redeem(ctx context.Context, till model.Till, typed string) (model.Order, error) {
	if s.codes == nil {
		return model.Order{}, noCodes()
	}
	if wait := s.wrong.Wait(till.By); wait > 0 {
		return model.Order{}, tooMany("Too many wrong codes: wait before you try again.", wait)
	}
	// A client that hangs up changes nothing: what is begun comes to its end.
	ctx, enough := context.WithTimeout(context.WithoutCancel(ctx), budget.Work)
	defer enough()
	hash, err := s.codes.Hash(typed)
	var order model.Order
	if err == nil {
		order, err = s.store.Redeem(ctx, hash, till)
	}
	refused, ok := errors.AsType[*model.Error](err)
	if ok && (refused.Code == model.CodeNotFound || refused.Code == model.CodeValidation) {
		s.wrong.Begin(till.By) // now and not before: right ones at once, of a shop's tills, are no wrong ones
	}
	return s.codes.Show(ctx, order), err
}

// Unredeem undoes the use of an order: its code is good again. NOT_FOUND: no such order. ILLEGAL_STATE, with its status:
// it is not redeemed. FORBIDDEN: it is another's use, or one of long ago. VALIDATION: the reason.
func (s *Redemptions) Unredeem(ctx context.Context, undo model.Undo) (model.Order, error) {
	ctx, enough := context.WithTimeout(context.WithoutCancel(ctx), budget.Work)
	defer enough()
	order, err := s.store.Unredeem(ctx, undo)
	if model.CodeOf(err) == model.CodeNotFound {
		found, unread := s.order(ctx, undo.OrderID)
		if err = unread; err == nil {
			err = model.IllegalMove(found.Status, model.OrderPaid)
		}
	}
	return s.codes.Show(ctx, order), err
}

func noCodes() error {
	return model.Unavailable("There are no codes: no payments are configured.", nil)
}

// Codes are what buyers use their vouchers with. Without a key (a nil *Codes) there are none.
type Codes struct {
	keys *vouchercode.Keys
	log  *slog.Logger

	// Voucher reads the voucher of a code; nil: nobody is told when codes can be used.
	Voucher func(ctx context.Context, voucherID string) (model.Voucher, error)
	known   *lru.Cache[string, heldVoucher]
}

type heldVoucher struct {
	model.Voucher

	at time.Time
}

// terms is the voucher of a code, read within a budget.Glance: a list has many codes of one.
func (c *Codes) terms(ctx context.Context, id string) (model.Voucher, error) {
	if held, ok := c.known.Get(id); ok && time.Since(held.at) < budget.Glance {
		return held.Voucher, nil
	}
	now := time.Now()
	v, err := c.Voucher(ctx, id)
	if err == nil {
		c.known.Add(id, heldVoucher{v, now})
	}
	return v, err
}

// NewCodes makes and reads codes with keys.
func NewCodes(keys *vouchercode.Keys, log *slog.Logger) *Codes {
	known, _ := lru.New[string, heldVoucher](maxRemembered) // a positive size is no error
	return &Codes{keys: keys, log: log, known: known}
}

// New makes a code for an order, as it is stored.
func (c *Codes) New(orderID string) model.SealedCode {
	code := vouchercode.New()
	return model.SealedCode{Hash: c.keys.Hash(code), Sealed: c.keys.Seal(code, orderID)}
}

// Hash is what the code that a person has typed is found by; VALIDATION when that is no code.
func (c *Codes) Hash(typed string) ([]byte, error) {
	if c == nil {
		return nil, noCodes()
	}
	code, err := vouchercode.Parse(typed)
	if err != nil {
		return nil, model.Invalid("body.code", "is mistyped: its check character does not fit")
	}
	return c.keys.Hash(code), nil
}

// Show opens the code of a paid or used order, for a caller that has checked who asks. It logs a code it cannot open.
func (c *Codes) Show(ctx context.Context, order model.Order) model.Order {
	usable := order.Status == model.OrderPaid || order.Status == model.OrderRedeemed
	if c == nil || !usable || order.SealedCode == "" {
		return order
	}
	code, err := c.keys.Open([]byte(order.SealedCode), order.ID)
	if err != nil {
		c.log.ErrorContext(ctx, "the code of an order cannot be shown", slog.String("order_id", order.ID),
			slog.Any("error", err))
		return order
	}
	order.Code = code.Reveal()
	if c.Voucher != nil && order.PaidAt != nil {
		if v, err := c.terms(ctx, order.VoucherID); err == nil { // the till decides
			order.Validity = v.ValidityOf(*order.PaidAt)
		}
	}
	return order
}

// Refunds gives money back when an administrator asks for it, and shows what became of that.
type Refunds struct {
	Store RefundStore
	// Detail finds any order, also one that has no row yet.
	Detail   func(ctx context.Context, orderID string) (model.OrderDetail, error)
	Cache    *cache.Vouchers
	Announce sale.Announce // told of units that came back
	Log      *slog.Logger
}

// Request refunds a paid order, and puts its unit on sale again, or retries a refund that had failed for good. If used is
// said, it refunds a used order too, whose unit is gone. NOT_FOUND: no such order. ILLEGAL_STATE, with its status: nothing to refund.
func (s *Refunds) Request(ctx context.Context, adminID, orderID string, ask model.RefundAsk) (refund model.Refund, err error) {
	if err := ask.Check(); err != nil {
		return refund, err
	}
	err = s.end(ctx, orderID, "", func(ctx context.Context, newID string) (err error) {
		refund, _, err = s.Store.Request(ctx, orderID, newID, adminID, ask)
		return err
	})
	return refund, err
}

// Withdraw refunds a buyer's own paid order as Request does, within its voucher's time for that. The receipt is the
// order with its history, in which administrators have no names; again: the same, and nothing has changed. NOT_FOUND:
// the buyer has no such order. ILLEGAL_STATE, with its status: it is not paid. WITHDRAWAL_OVER: see model.Error.Until.
func (s *Refunds) Withdraw(
	ctx context.Context, userID, orderID string,
) (receipt model.OrderDetail, changed bool, err error) {
	err = s.end(ctx, orderID, userID, func(ctx context.Context, newID string) (err error) {
		changed, err = s.Store.Withdraw(ctx, orderID, newID, userID)
		return err
	})
	if err == nil {
		receipt, err = s.Detail(ctx, orderID)
	}
	receipt.Uses = nil // which name administrators
	receipt.PaidReference = ""
	for i, move := range receipt.History {
		if move.From != nil && *move.From == model.OrderUnpaid { // what it was paid with is for administrators
			receipt.History[i].Reason = ""
		}
		if move.By != userID && move.By != model.BySystem && move.By != model.ByProvider {
			receipt.History[i].By = string(model.RoleAdmin)
		}
	}
	return receipt, changed, err
}

// end ends an order, of one user or of anybody, and tells of its unit.
func (s *Refunds) end(
	ctx context.Context, orderID, userID string, do func(ctx context.Context, newID string) error,
) error {
	voucherID, ok := model.VoucherOf(orderID)
	if !ok {
		return model.NotFound("order")
	}
	id, err := ids.New()
	if err != nil {
		return err
	}
	ctx, enough := context.WithTimeout(context.WithoutCancel(ctx), budget.Work)
	defer enough()
	err = do(ctx, id)
	if err == nil || errors.Is(err, model.ErrUnknownOutcome) {
		s.Cache.Returned(voucherID)
		s.Announce.Tell(ctx, s.Log, voucherID)
	}
	if model.CodeOf(err) != model.CodeNotFound {
		return err
	}
	found, err := s.Detail(ctx, orderID)
	if err == nil && userID != "" && found.UserID != userID {
		err = model.NotFound("order")
	}
	return absent(found.Order, err, model.OrderRefunded, model.MoverAdmin)
}

// PaidBack notes that a person has paid back what was paid elsewhere; again: the same. NOT_FOUND: no such order.
// ILLEGAL_STATE, with its status: nothing of it was to be paid back by a person.
func (s *Refunds) PaidBack(ctx context.Context, adminID, orderID string) (model.Refund, error) {
	ctx, enough := context.WithTimeout(context.WithoutCancel(ctx), budget.Work)
	defer enough()
	return s.Store.PaidBack(ctx, orderID, adminID)
}

// OrderSearch finds orders for administrators.
type OrderSearch struct {
	store  OrderSearchStore
	orders OrderDetails
	codes  *Codes
}

// NewOrderSearch makes the service. Without codes it finds none by one.
func NewOrderSearch(store OrderSearchStore, orders OrderDetails, codes *Codes) *OrderSearch {
	return &OrderSearch{store, orders, codes}
}

// Find returns one page, newest first. A processing order is found by its id alone. VALIDATION: cursor or status.
// NOT_ELIGIBLE: the words are a code that the till may not use.
func (s *OrderSearch) Find(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	if _, order := model.VoucherOf(q.Words); order && q.Cursor == "" && q.Span.Of == "" {
		detail, err := s.orders.Detail(ctx, q.Words)
		switch {
		case err == nil && (q.Status == "" || q.Status == detail.Status):
			return model.OrderPage{Items: []model.Order{detail.Order}}, nil
		case err != nil && model.CodeOf(err) != model.CodeNotFound:
			return model.OrderPage{}, err
		}
	}
	q = s.orCode(q)
	page, err := s.store.List(ctx, q)
	for i := range page.Items {
		if q.CodeHash != "" && q.Till != nil {
			v, err := s.codes.terms(ctx, page.Items[i].VoucherID)
			if err == nil {
				_, err = v.PlaceOf(*q.Till)
			}
			if err != nil {
				return model.OrderPage{}, err
			}
		}
		page.Items[i] = s.codes.Show(ctx, page.Items[i])
	}
	return page, err
}

// Counts are how many orders of each status a query finds, up to model.MaxCounted.
func (s *OrderSearch) Counts(ctx context.Context, q model.OrderQuery) (map[model.OrderStatus]int64, error) {
	return s.store.Counts(ctx, s.orCode(q))
}

// Each calls yield with every order of a query and its money, newest first; see Find. NOT_FOUND: there is no voucher.
func (s *OrderSearch) Each(ctx context.Context, q model.OrderQuery, yield func(model.BookedOrder) error) error {
	if q.VoucherID != "" {
		return s.orders.Each(ctx, q, yield)
	}
	if q.Till == nil {
		q = s.orCode(q)
	}
	return s.store.Each(ctx, q, yield)
}

// orCode has words found as a code too, if they are one.
func (s *OrderSearch) orCode(q model.OrderQuery) model.OrderQuery {
	if s.codes != nil && q.Words != "" {
		hash, _ := s.codes.Hash(q.Words)
		q.CodeHash = string(hash)
	}
	return q
}
