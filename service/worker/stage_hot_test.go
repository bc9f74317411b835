package worker

import (
	"context"
	"maps"
	"strconv"
	"time"

	"seckill/model"
)

// hotSide is the hot copies, as their scripts behave.
type hotSide struct{ *stage }

func (h hotSide) open() bool { return h.hot.State == model.CopyOpen && h.marks[h.hot.Epoch] != nil }

// lose is a FLUSHALL.
func (s *stage) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hot = model.HotCopy{State: model.CopyClosed}
	s.losses++
	clear(s.marks)
	clear(s.pendings)
	clear(s.due)
}

// opened runs a script that needs the copy open.
func (h hotSide) opened(name string, do func()) error {
	if err := h.step(name); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open() {
		return model.ErrCopyClosed
	}
	do()
	h.hot.Voucher.Version++
	return nil
}

func (h hotSide) Reserve(_ context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error) {
	a := model.ReserveResult{}
	a.ID, a.VoucherID, a.UserID = asked[0].OrderID, asked[0].VoucherID, asked[0].UserID
	err := h.opened("hot.reserve", func() {
		a.Epoch, a.CreatedAt = h.hot.Epoch, time.Now()
		switch {
		case h.marks[a.Epoch][a.UserID] != "":
			a.Err = model.AlreadyOrdered(model.Order{ID: h.marks[a.Epoch][a.UserID]})
		case int64(len(h.marks[a.Epoch])) >= h.hot.Voucher.Stock-h.missing:
			a.Err = model.SoldOut()
		default:
			h.marks[a.Epoch][a.UserID] = a.ID
			h.pendings[a.Epoch][a.ID] = a.Reservation
		}
	})
	if err != nil {
		a.Err = err
	}
	return []model.ReserveResult{a}, nil
}

func (h hotSide) Confirm(_ context.Context, rs []model.Reservation) ([]bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return []bool{h.open() && rs[0].Epoch == h.hot.Epoch}, nil
}

func (h hotSide) Settle(_ context.Context, _ string, ids []string) error {
	if err := h.step("hot.settle"); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		delete(h.pendings[h.hot.Epoch], id)
		delete(h.due, id)
	}
	h.hot.Voucher.Version++
	return nil
}

func (h hotSide) Release(_ context.Context, r model.Release) (bool, error) {
	err := h.opened("hot.release", func() {
		epoch := h.hot.Epoch
		delete(h.pendings[epoch], r.OrderID)
		delete(h.due, r.OrderID)
		if h.marks[epoch][r.UserID] == r.OrderID {
			delete(h.marks[epoch], r.UserID)
		}
	})
	if err == model.ErrCopyClosed { //nolint:errorlint // it is never wrapped here
		return false, nil
	}
	return err == nil, err
}

func (h hotSide) Touch(_ context.Context, rs []model.Reservation) error {
	return h.opened("hot.touch", func() {
		for _, r := range rs {
			h.due[r.ID] = time.Now()
		}
	})
}

func (h hotSide) Read(context.Context, []string) (map[string]model.HotCopy, error) {
	if err := h.step("hot.read"); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	hot := h.hot
	if hot.State == model.CopyOpen && !h.open() {
		hot.State = model.CopyClosed
	}
	hot.Buyers, hot.Reserved = int64(len(h.marks[hot.Epoch])), int64(len(h.pendings[hot.Epoch]))
	hot.Voucher.Remaining = max(0, hot.Voucher.Stock-h.missing-hot.Buyers)
	hot.Voucher.ServerTime = time.Now()
	return map[string]model.HotCopy{"v1": hot}, nil
}

func (h hotSide) Incarnation(context.Context) (string, error) {
	return strconv.Itoa(h.losses), h.step("hot.incarnation")
}

func (h hotSide) Quiet(_ context.Context, records []model.EpochRecord) []bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	quiet := make([]bool, len(records))
	for i, r := range records {
		quiet[i] = r.VoucherID == "v1" && h.marks[r.Epoch] != nil && len(h.pendings[r.Epoch]) == 0
	}
	return quiet
}

func (h hotSide) Pending(_ context.Context, id string) (r model.Reservation, found bool, err error) {
	err = h.opened("hot.pending", func() { r, found = h.pendings[h.hot.Epoch][id]; h.hot.Voucher.Version-- })
	return r, found, err
}

func (h hotSide) OrderOf(_ context.Context, _, userID string) (id string, pending *model.Reservation, err error) {
	err = h.opened("hot.orderof", func() { id = h.marks[h.hot.Epoch][userID]; h.hot.Voucher.Version-- })
	return id, nil, err
}

func (h hotSide) Due(_ context.Context, _ string, age time.Duration, _ int) (due []model.Reservation, err error) {
	err = h.opened("hot.due", func() {
		h.hot.Voucher.Version--
		for id, r := range h.pendings[h.hot.Epoch] {
			if time.Since(h.due[id]) >= age {
				due = append(due, r)
			}
		}
	})
	return due, err
}

func (h hotSide) Marks(_ context.Context, _ string, epoch int64, yield func(userID, orderID string) error) error {
	h.mu.Lock()
	marks := maps.Clone(h.marks[epoch])
	h.mu.Unlock()
	for user, id := range marks {
		for range 2 { // a scan may show an entry twice
			if err := yield(user, id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h hotSide) Pendings(_ context.Context, _ string, epoch int64, yield func(model.Reservation) error) error {
	h.mu.Lock()
	var list []model.Reservation
	for _, r := range h.pendings[epoch] {
		list = append(list, r, r)
	}
	h.mu.Unlock()
	for _, r := range list {
		if err := yield(r); err != nil {
			return err
		}
	}
	return nil
}

// building runs a script of who builds an epoch.
func (h hotSide) building(name string, epoch int64, do func()) error {
	if err := h.step(name); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hot.Epoch != epoch || h.hot.State == model.CopyOpen {
		return model.ErrSuperseded
	}
	do()
	return nil
}

func (h hotSide) Close(_ context.Context, _ string, epoch, opened int64) error {
	if err := h.step("hot.close"); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hot.Epoch > epoch {
		return model.ErrSuperseded
	}
	h.hot.Epoch, h.hot.State = epoch, model.CopyClosed
	h.keep(func(held int64) bool { return held == opened })
	return nil
}

// keep frees the keys of all other epochs.
func (h hotSide) keep(which func(epoch int64) bool) {
	maps.DeleteFunc(h.marks, func(epoch int64, _ map[string]string) bool { return !which(epoch) })
	maps.DeleteFunc(h.pendings, func(epoch int64, _ map[string]model.Reservation) bool { return !which(epoch) })
}

func (h hotSide) Abandon(_ context.Context, _ string, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keep(func(held int64) bool { return held != epoch })
}

func (h hotSide) Load(_ context.Context, _ string, epoch int64, live []model.Order, carried []model.Reservation) error {
	lost := false
	err := h.building("hot.load", epoch, func() {
		if h.hot.State == model.CopyClosed && len(live)+len(carried) == 0 {
			h.hot.State = model.CopyRebuilding
			h.marks[epoch], h.pendings[epoch] = map[string]string{}, map[string]model.Reservation{}
		}
		if lost = h.hot.State != model.CopyRebuilding || h.marks[epoch] == nil; lost {
			return
		}
		for _, order := range live {
			h.marks[epoch][order.UserID] = order.ID
		}
		for _, r := range carried {
			if h.marks[epoch][r.UserID] == "" {
				h.marks[epoch][r.UserID] = r.ID
			}
			h.pendings[epoch][r.ID] = r
			h.due[r.ID] = time.Time{}
		}
	})
	if err == nil && lost {
		return model.ErrSuperseded
	}
	return err
}

func (h hotSide) Open(_ context.Context, v model.Voucher, epoch, missing, _ int64) error {
	lost := false
	err := h.building("hot.open", epoch, func() {
		if lost = h.hot.State != model.CopyRebuilding || h.marks[epoch] == nil; lost {
			return
		}
		h.hot, h.missing = model.HotCopy{State: model.CopyOpen, Epoch: epoch, Voucher: v}, missing
		h.hot.Voucher.Version = epoch << 40
		h.keep(func(held int64) bool { return held == epoch })
	})
	if err == nil && lost {
		return model.ErrSuperseded
	}
	return err
}

func (h hotSide) Apply(_ context.Context, v model.Voucher) (bool, error) {
	err := h.opened("hot.apply", func() {
		if h.hot.Voucher.Revision < v.Revision {
			version := h.hot.Voucher.Version
			h.hot.Voucher = v
			h.hot.Voucher.Version = version
		}
	})
	return err == nil, err
}

func (h hotSide) Lower(_ context.Context, _ string, stock, revision int64) error {
	refused := false
	err := h.opened("hot.lower", func() {
		if refused = h.missing+int64(len(h.marks[h.hot.Epoch])) > stock; !refused {
			h.hot.Voucher.Stock, h.hot.Voucher.Revision = stock, revision
		}
	})
	if err == nil && refused {
		return model.Conflict("More is taken.")
	}
	return err
}
