package hotcopytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"seckill/model"
)

// Reserve is that of hotcopy.Store.
func (c *Copies) Reserve(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error) {
	answers := make([]model.ReserveResult, len(asked))
	for i, a := range asked {
		answers[i].Order = model.Order{ID: a.OrderID, VoucherID: a.VoucherID, UserID: a.UserID}
	}
	err := c.do(ctx, "Reserve", "", func(*Sale) error {
		for i, a := range asked {
			if c.Answer != nil {
				if given := c.Answer(a); given != nil {
					answers[i] = *given
					continue
				}
			}
			c.reserve(a, &answers[i])
		}
		return nil
	})
	if err != nil {
		for i := range answers {
			answers[i].Err = err
		}
	}
	return answers, err
}

func (c *Copies) reserve(asked model.ReserveRequest, a *model.ReserveResult) {
	s := c.Sales[asked.VoucherID]
	if !s.open() {
		a.Err = model.ErrCopyClosed
		return
	}
	e := s.Now()
	mark, marked := e.Marks[asked.UserID]
	pending, isPending := e.Pending[mark]
	_, closed := e.Closed[asked.OrderID]
	voucher := s.Voucher
	if asked.Early {
		voucher = voucher.ForEarly()
	}
	refusal := voucher.Refusal(time.Now())
	switch {
	case marked && mark == asked.OrderID && isPending:
		a.Reservation = pending
	case marked && mark == asked.OrderID: // it is settled
		a.Price, a.Currency = s.Voucher.Price, s.Voucher.Currency
	case closed:
		a.Err = model.ErrOrderClosed
	case refusal != nil && !asked.Anytime:
		a.Err = refusal
	case c.Locked[asked.UserID] && !asked.Locked:
		a.Err = model.ErrUserLocked
	case marked:
		a.Err = model.AlreadyOrdered(model.Order{ID: mark, Status: pending.Status})
	case s.Voucher.Cooldown > 0 && e.Cooling[asked.UserID].After(time.Now()) && !asked.Anytime:
		a.Err = model.CoolingDown(e.Cooling[asked.UserID], time.Now())
	case s.Free() <= 0:
		a.Err = model.SoldOut()
	default:
		a.Reservation = s.Put(asked.OrderID, asked.UserID)
	}
	a.Epoch = s.Epoch
}

// Confirm is that of hotcopy.Store.
func (c *Copies) Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error) {
	open := make([]bool, len(reservations))
	return open, c.do(ctx, "Confirm", "", func(*Sale) error {
		for i, r := range reservations {
			s := c.Sales[r.VoucherID]
			open[i] = s != nil && s.State == model.CopyOpen && s.Epoch == r.Epoch
		}
		return nil
	})
}

// Settle is that of hotcopy.Store.
func (c *Copies) Settle(ctx context.Context, orders []model.Order) error {
	return c.do(ctx, "Settle", "", func(*Sale) error {
		var failed []error
		for _, o := range orders {
			if away := c.Away[o.VoucherID]; away != nil {
				failed = append(failed, model.Unavailable("Redis does not answer.", away))
				continue
			}
			if s := c.Sales[o.VoucherID]; s.open() && o.ID != "" {
				delete(s.Now().Pending, o.ID)
				delete(s.Now().Due, o.ID)
			}
			c.tell([]string{o.ID})
		}
		return errors.Join(failed...)
	})
}

// Release is that of hotcopy.Store.
func (c *Copies) Release(ctx context.Context, release model.Release) (applied bool, err error) {
	return c.ReleaseAll(ctx, release.VoucherID, []model.Release{release})
}

// ReleaseAll is that of hotcopy.Store, in one call however many there are.
func (c *Copies) ReleaseAll(ctx context.Context, voucherID string, releases []model.Release) (applied bool, err error) {
	ids := make([]string, len(releases))
	for i, r := range releases {
		if ids[i] = r.OrderID; r.OrderID == "" || r.UserID == "" {
			return false, fmt.Errorf("release %d names no order and user", r.ID)
		}
	}
	if len(releases) == 0 {
		return true, nil
	}
	err = c.do(ctx, "Release", voucherID, func(s *Sale) error {
		c.tell(ids)
		if !s.open() {
			return nil
		}
		told := slices.IndexFunc(releases, func(r model.Release) bool { return r.ID == 0 })
		if s.Voucher.Waitlist && told >= 0 && (told < len(releases)-1 || !releases[told].Direct) {
			return model.ErrNeedsOutbox
		}
		for _, r := range releases {
			switch {
			case !s.Voucher.Waitlist || !s.waits(r):
			case told >= 0:
				return model.ErrNeedsOutbox
			default:
				return nil
			}
			if marks := s.Now().Marks; r.HeirID != "" && marks[r.UserID] == r.OrderID {
				marks[r.HeirUserID] = r.HeirID
			}
			s.release(r)
		}
		applied = true
		return nil
	})
	return applied, err
}

// waits reports whether a unit cannot change hands yet.
func (s *Sale) waits(r model.Release) bool {
	marks := s.Now().Marks
	if r.ID == 0 && marks[r.UserID] != r.OrderID {
		return true
	}
	return r.HeirID != "" && marks[r.UserID] == r.OrderID && marks[r.HeirUserID] != "" && marks[r.HeirUserID] != r.HeirID
}

func (s *Sale) release(r model.Release) {
	e, orderID, userID := s.Now(), r.OrderID, r.UserID
	_, held := e.Pending[orderID]
	if until := r.CooldownUntil; until != nil && until.After(e.Cooling[userID]) {
		e.Cooling[userID], held = until.Truncate(time.Millisecond), true
	}
	delete(e.Pending, orderID)
	delete(e.Due, orderID)
	if e.Marks[userID] == orderID {
		delete(e.Marks, userID)
		held = true
	}
	if held {
		s.Changes++
	}
	maps.DeleteFunc(e.Closed, func(_ string, at time.Time) bool { return time.Since(at) > tombstoneRetention })
	if _, known := e.Closed[orderID]; !known {
		e.Closed[orderID] = time.Now()
	}
}

// Touch is that of hotcopy.Store.
func (c *Copies) Touch(ctx context.Context, reservations []model.Reservation) error {
	return c.do(ctx, "Touch", "", func(*Sale) (err error) {
		for _, r := range reservations {
			s := c.Sales[r.VoucherID]
			if !s.open() {
				err = errors.Join(err, failed("Touch", r.VoucherID, model.ErrCopyClosed))
			} else {
				delete(s.Now().Due, r.ID)
				s.mend(r.ID)
			}
		}
		return err
	})
}

// Mend is that of hotcopy.Store.
func (c *Copies) Mend(ctx context.Context, voucherID string, orderIDs []string) error {
	return c.opened(ctx, "Mend", voucherID, func(s *Sale) error {
		for _, id := range orderIDs {
			s.mend(id)
		}
		return nil
	})
}

// mend notes an order if it is pending and is not noted, and only then.
func (s *Sale) mend(id string) {
	e := s.Now()
	if _, pending := e.Pending[id]; !pending {
		delete(e.Due, id)
	} else if _, noted := e.Due[id]; !noted {
		e.Due[id] = time.Now().Truncate(time.Millisecond)
	}
}

// Read is that of hotcopy.Store.
func (c *Copies) Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	copies := map[string]model.HotCopy{}
	if slices.ContainsFunc(ids, func(id string) bool { return c.Silent[id] }) {
		<-ctx.Done()
		return copies, model.Unavailable("Redis does not answer.", ctx.Err())
	}
	return copies, c.do(ctx, "Read", "", func(*Sale) (err error) {
		for _, id := range ids {
			if away := c.Away[id]; away != nil {
				err = errors.Join(err, model.Unavailable("Redis does not answer.", away))
			} else {
				copies[id] = c.Sales[id].read(id)
			}
		}
		return err
	})
}

func (s *Sale) read(id string) model.HotCopy {
	if s == nil {
		s = &Sale{State: model.CopyClosed, Voucher: kept(model.Voucher{ID: id, BeginAt: time.UnixMicro(0), EndAt: time.UnixMicro(0)})}
	}
	hot := model.HotCopy{
		State: s.State, Epoch: s.Epoch, Buyers: int64(len(s.Now().Marks)), Reserved: int64(len(s.Now().Pending)),
		Due: int64(len(s.Now().Due)), Voucher: s.Voucher,
	}
	if s.open() {
		hot.Voucher.Remaining = max(0, s.Free())
	} else if s.State == model.CopyOpen {
		hot.State = model.CopyClosed
	}
	hot.Voucher.Version = s.Epoch<<versionShift + s.Changes
	hot.Voucher = hot.Voucher.At(time.Now())
	return hot
}

// Pending is that of hotcopy.Store. An id that names no voucher, as tests like
// them, is looked for in every copy.
func (c *Copies) Pending(ctx context.Context, orderID string) (r model.Reservation, found bool, err error) {
	voucherID, ok := model.VoucherOf(orderID)
	err = c.do(ctx, "Pending", voucherID, func(s *Sale) error {
		if ok && !s.open() {
			return failed("Pending", voucherID, model.ErrCopyClosed)
		}
		for id, s := range c.Sales {
			if s.open() && (id == voucherID || !ok) && !found {
				r, found = s.Now().Pending[orderID]
			}
		}
		return nil
	})
	return r, found, err
}

// OrderOf is that of hotcopy.Store.
func (c *Copies) OrderOf(ctx context.Context, voucherID, userID string) (orderID string, pending *model.Reservation, err error) {
	if userID == "" {
		return "", nil, nil
	}
	err = c.opened(ctx, "OrderOf", voucherID, func(s *Sale) error {
		orderID, pending = s.orderOf(userID)
		return nil
	})
	return orderID, pending, err
}

func (s *Sale) orderOf(userID string) (string, *model.Reservation) {
	id := s.Now().Marks[userID]
	if r, ok := s.Now().Pending[id]; ok {
		return id, &r
	}
	return id, nil
}

// OrdersOf is that of hotcopy.Store.
func (c *Copies) OrdersOf(ctx context.Context, buyers []model.Buyer) ([]model.BuyersOrder, error) {
	found := make([]model.BuyersOrder, len(buyers))
	_ = c.do(ctx, "OrdersOf", "", func(*Sale) error { // what cannot be told is empty
		for i, b := range buyers {
			if s := c.Sales[b.VoucherID]; s.open() {
				found[i].OrderID, found[i].Pending = s.orderOf(b.UserID)
			}
		}
		return nil
	})
	return found, nil
}

// Due is that of hotcopy.Store.
func (c *Copies) Due(ctx context.Context, voucherID string, olderThan time.Duration, limit int) ([]model.Reservation, error) {
	due := []model.Reservation{}
	err := c.opened(ctx, "Due", voucherID, func(s *Sale) error {
		e, last := s.Now(), time.Now().Truncate(time.Millisecond).Add(-olderThan)
		for id, at := range e.Due {
			if r, pending := e.Pending[id]; !at.After(last) {
				if !pending {
					r.Order = model.Order{ID: id, VoucherID: voucherID}
				}
				due = append(due, r)
			}
		}
		slices.SortFunc(due, func(a, b model.Reservation) int {
			return cmp.Or(e.Due[a.ID].Compare(e.Due[b.ID]), cmp.Compare(a.ID, b.ID))
		})
		return nil
	})
	return due[:min(len(due), limit, maxDue)], err
}

// Processing is that of hotcopy.Store.
func (c *Copies) Processing(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	after, err := model.ParseCursor(q.Cursor)
	if err != nil {
		return model.OrderPage{}, err
	}
	orders, err := c.processing(ctx, "Processing", q.VoucherID)
	if err != nil {
		return model.OrderPage{}, err
	}
	orders = slices.DeleteFunc(orders, func(o model.Order) bool {
		return after.ID != "" && cmp.Or(o.CreatedAt.Compare(after.At), cmp.Compare(o.ID, after.ID)) >= 0
	})
	page := model.OrderPage{Items: orders}
	if limit := model.PageSize(q.Limit); len(orders) > limit {
		page.Items = orders[:limit]
		page.NextCursor = model.Cursor{At: orders[limit-1].CreatedAt, ID: orders[limit-1].ID}.String()
	}
	return page, nil
}

// EachProcessing is that of hotcopy.Store.
func (c *Copies) EachProcessing(ctx context.Context, voucherID string, yield func(model.Order) error) error {
	orders, err := c.processing(ctx, "EachProcessing", voucherID)
	if err != nil {
		return err
	}
	return each(orders, 1, yield)
}

// processing are the pending orders, newest first.
func (c *Copies) processing(ctx context.Context, method, voucherID string) ([]model.Order, error) {
	orders := []model.Order{}
	err := c.opened(ctx, method, voucherID, func(s *Sale) error {
		for _, r := range s.Now().Pending {
			orders = append(orders, r.Order)
		}
		return nil
	})
	slices.SortFunc(orders, func(a, b model.Order) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	return orders, err
}

// Buyers is that of hotcopy.Store.
func (c *Copies) Buyers(ctx context.Context, v model.Voucher, yield func(userID string) error) error {
	var users []string
	err := c.opened(ctx, "Buyers", v.ID, func(s *Sale) error {
		users = slices.Collect(maps.Keys(s.Now().Marks))
		for user, until := range s.Now().Cooling {
			if v.Cooldown > 0 && until.After(v.ServerTime) {
				users = append(users, user)
			}
		}
		return nil
	})
	if err == nil {
		err = pause(ctx, c.Yields)
	}
	if err != nil {
		return err
	}
	return each(users, 2, yield)
}

// Marks is that of hotcopy.Store.
func (c *Copies) Marks(ctx context.Context, voucherID string, epoch int64, yield func(userID, orderID string) error) error {
	var marks map[string]string
	err := c.do(ctx, "Marks", voucherID, func(s *Sale) error {
		marks = maps.Clone(s.Of(epoch).Marks)
		return nil
	})
	if err != nil {
		return err
	}
	return each(slices.Collect(maps.Keys(marks)), 2, func(user string) error { return yield(user, marks[user]) })
}

// Pendings is that of hotcopy.Store.
func (c *Copies) Pendings(ctx context.Context, voucherID string, epoch int64, yield func(model.Reservation) error) error {
	var pending []model.Reservation
	err := c.do(ctx, "Pendings", voucherID, func(s *Sale) error {
		pending = slices.Collect(maps.Values(s.Of(epoch).Pending))
		return nil
	})
	if err != nil {
		return err
	}
	return each(pending, 2, yield)
}

// Held is that of hotcopy.Store.
func (c *Copies) Held(ctx context.Context, voucherID string, epoch int64, orderIDs []string) (map[string]model.Reservation, error) {
	held := map[string]model.Reservation{}
	err := c.do(ctx, "Held", voucherID, func(s *Sale) error {
		for _, id := range orderIDs {
			if r, ok := s.Of(epoch).Pending[id]; ok {
				held[id] = r
			}
		}
		return nil
	})
	return held, err
}

// each yields everything so often: a scan may show an entry twice.
func each[T any](all []T, times int, yield func(T) error) error {
	for _, one := range all {
		for range times {
			if err := yield(one); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close is that of hotcopy.Store.
func (c *Copies) Close(ctx context.Context, record model.EpochRecord) error {
	voucherID, epoch := record.VoucherID, record.Epoch
	return c.do(ctx, "Close", voucherID, func(s *Sale) error {
		if s == nil {
			s = &Sale{Voucher: model.Voucher{ID: voucherID}, Epochs: map[int64]*Epoch{}}
			c.Sales[voucherID] = s
		}
		switch {
		case s.Epoch > epoch || s.Opened == epoch:
			return failed("Close", voucherID, model.ErrSuperseded)
		case s.Epoch < epoch:
			maps.DeleteFunc(s.Epochs, func(held int64, _ *Epoch) bool { return held == epoch || held != record.OpenEpoch })
			s.Epoch, s.State, s.Opened = epoch, model.CopyClosed, record.OpenEpoch
		}
		return nil
	})
}

// Abandon is that of hotcopy.Store.
func (c *Copies) Abandon(ctx context.Context, record model.EpochRecord) {
	_ = c.do(ctx, "Abandon", record.VoucherID, func(s *Sale) error { // it tells no result
		if s != nil {
			delete(s.Epochs, record.Epoch)
		}
		return nil
	})
}

// Load is that of hotcopy.Store.
func (c *Copies) Load(ctx context.Context, record model.EpochRecord, live []model.Order, carried []model.Reservation) error {
	voucherID, epoch := record.VoucherID, record.Epoch
	return c.do(ctx, "Load", voucherID, func(s *Sale) error {
		if s != nil && s.Epoch == epoch && s.State == model.CopyClosed && len(live)+len(carried) == 0 {
			s.State, s.Epochs[epoch] = model.CopyRebuilding, newEpoch()
		}
		if !s.building(epoch) {
			return failed("Load", voucherID, model.ErrSuperseded)
		}
		e := s.Epochs[epoch]
		for _, order := range live {
			e.Marks[order.UserID] = order.ID
		}
		for _, r := range carried {
			if e.Marks[r.UserID] == "" {
				e.Marks[r.UserID] = r.ID
			}
			e.Pending[r.ID], e.Due[r.ID] = entry(voucherID, r), time.Time{}
		}
		return nil
	})
}

// LoadCooling is that of hotcopy.Store.
func (c *Copies) LoadCooling(ctx context.Context, record model.EpochRecord, cooling []model.Cooling) error {
	return c.do(ctx, "LoadCooling", record.VoucherID, func(s *Sale) error {
		if !s.building(record.Epoch) {
			return failed("LoadCooling", record.VoucherID, model.ErrSuperseded)
		}
		for _, user := range cooling {
			s.Epochs[record.Epoch].Cooling[user.UserID] = user.Until.Truncate(time.Millisecond)
		}
		return nil
	})
}

// building reports whether an epoch is being loaded, and nothing of it was lost.
func (s *Sale) building(epoch int64) bool {
	return s != nil && s.Epoch == epoch && s.State == model.CopyRebuilding && s.Epochs[epoch] != nil
}

// Open is that of hotcopy.Store.
func (c *Copies) Open(ctx context.Context, record model.EpochRecord, v model.Voucher, missing int64) error {
	epoch, previous := record.Epoch, record.OpenEpoch
	return c.do(ctx, "Open", v.ID, func(s *Sale) error {
		if s.open() && s.Epoch == epoch {
			return nil
		}
		if !s.building(epoch) {
			return failed("Open", v.ID, model.ErrSuperseded)
		}
		if previous != epoch {
			delete(s.Epochs, previous)
		}
		s.State, s.Opened, s.Changes, s.Missing, s.Voucher = model.CopyOpen, epoch, 0, missing, kept(v)
		return nil
	})
}

// Apply is that of hotcopy.Store.
func (c *Copies) Apply(ctx context.Context, v model.Voucher) (applied bool, err error) {
	err = c.do(ctx, "Apply", v.ID, func(s *Sale) error {
		newer := s.open() && s.Voucher.Revision < v.Revision
		if newer && s.Voucher.Waitlist && s.Free() <= 0 && v.Stock > s.Voucher.Stock {
			return &model.OutgrownError{VoucherID: v.ID, Epoch: s.Epoch}
		}
		if applied = s.open(); newer {
			s.Voucher = kept(v)
			s.Changes++
		}
		return nil
	})
	return applied, err
}

// Lower is that of hotcopy.Store.
func (c *Copies) Lower(ctx context.Context, voucherID string, stock, revision int64) error {
	return c.opened(ctx, "Lower", voucherID, func(s *Sale) error {
		switch {
		case s.Voucher.Revision > revision:
			return failed("Lower", voucherID, model.ErrSuperseded)
		case s.Voucher.Stock-s.Free() > stock:
			return model.Conflict("More than that is sold or reserved already.")
		}
		s.Voucher.Stock, s.Voucher.Revision = min(stock, s.Voucher.Stock), revision
		s.Changes++
		return nil
	})
}

// Incarnation is that of hotcopy.Store.
func (c *Copies) Incarnation(ctx context.Context) (incarnation string, err error) {
	err = c.do(ctx, "Incarnation", "", func(*Sale) error {
		incarnation = strconv.Itoa(c.losses)
		return nil
	})
	return incarnation, err
}

// Quiet is that of hotcopy.Store.
func (c *Copies) Quiet(ctx context.Context, records []model.EpochRecord) []bool {
	quiet := make([]bool, len(records))
	_ = c.do(ctx, "Quiet", "", func(*Sale) error { // what cannot be told is not quiet
		for i, r := range records {
			s := c.Sales[r.VoucherID]
			e := s.Of(r.Epoch)
			quiet[i] = s != nil && s.Epochs[r.Epoch] == e && len(e.Pending)+len(e.Due) == 0 && int64(len(e.Marks)) == r.Taken
		}
		return nil
	})
	return quiet
}
