package hotcopytest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"seckill/model"
)

// Sale looks past the store at the keys of one voucher's hot copy, and spoils them. See head.lua.
type Sale struct {
	c  *Copies
	ID string
}

// Sale is the copy of a voucher.
func (c *Copies) Sale(voucherID string) *Sale { return &Sale{c: c, ID: voucherID} }

// Add opens an empty copy of a voucher in epoch 1.
func (c *Copies) Add(v model.Voucher) *Sale {
	c.rebuild(v, 1, nil, nil)
	return c.Sale(v.ID)
}

func (c *Copies) rebuild(v model.Voucher, epoch int64, live []model.Order, carried []model.Reservation) {
	ctx, record := context.Background(), model.EpochRecord{VoucherID: v.ID, Epoch: epoch, OpenEpoch: epoch - 1}
	for _, step := range []func() error{
		func() error { return c.Store.Close(ctx, record) },
		func() error { return c.Store.Load(ctx, record, nil, nil) },
		func() error { return c.Store.Load(ctx, record, live, carried) },
		func() error { return c.Store.Open(ctx, record, v, 0) },
	} {
		if err := step(); err != nil {
			c.t.Error(err)
		}
	}
}

// Rebuild takes all that the copy holds to its next epoch.
func (s *Sale) Rebuild() {
	var live []model.Order
	var carried []model.Reservation
	for user, id := range s.Marks() {
		live = append(live, model.Order{ID: id, UserID: user})
	}
	for _, r := range s.Pending() {
		carried = append(carried, r)
	}
	s.c.rebuild(s.Voucher(), s.Epoch()+1, live, carried)
}

// Admit reserves a unit by a copy that knows no other order of the user.
func (s *Sale) Admit(orderID, userID string) model.Reservation {
	s.Drop("buyers", userID)
	asked := model.ReserveRequest{OrderID: orderID, VoucherID: s.ID, UserID: userID, Locked: true, Anytime: true}
	answers, err := s.c.Store.Reserve(context.Background(), []model.ReserveRequest{asked})
	if err != nil || answers[0].Err != nil {
		s.c.t.Errorf("reserve %s for %s: %v, %v", orderID, userID, err, answers[0].Err)
	}
	return answers[0].Reservation
}

func (s *Sale) key(noun string) string {
	if noun == "head" {
		return "seckill:v1:{" + s.ID + "}:head"
	}
	return fmt.Sprintf("seckill:v1:{%s}:%d:%s", s.ID, s.Epoch(), noun)
}

func (s *Sale) read() model.HotCopy {
	copies, err := s.c.Store.Read(context.Background(), []string{s.ID})
	if err != nil {
		s.c.t.Error(err)
	}
	return copies[s.ID]
}

// State is closed where there is no copy.
func (s *Sale) State() model.CopyState { return s.read().State }

// Voucher is what the head has of the voucher.
func (s *Sale) Voucher() model.Voucher { return s.read().Voucher }

// Epoch is that of the head; 0 without one.
func (s *Sale) Epoch() int64 {
	epoch, _ := strconv.ParseInt(s.c.server.HGet("seckill:v1:{"+s.ID+"}:head", "epoch"), 10, 64)
	return epoch
}

// Free are the units that may still be reserved.
func (s *Sale) Free() int64 { return s.Voucher().Remaining }

// Set changes a field of the head, which counts as a change of the copy.
func (s *Sale) Set(field string, value any) {
	s.c.server.HSet(s.key("head"), field, fmt.Sprint(value))
	s.Touch()
}

// Change brings a change of the voucher to the copy, as its next revision.
func (s *Sale) Change(change func(v *model.Voucher)) {
	v := s.Voucher()
	change(&v)
	v.Revision++
	if applied, err := s.c.Store.Apply(context.Background(), v); err != nil || !applied {
		s.c.t.Errorf("change the copy: %v, %v", applied, err)
	}
}

// Touch makes the copy another version of itself.
func (s *Sale) Touch() {
	if _, err := s.c.server.HIncrBy(s.key("head"), "changes", 1); err != nil {
		s.c.t.Error(err)
	}
}

// Marks are the orders of users in the open epoch.
func (s *Sale) Marks() map[string]string { return s.hash("buyers") }

func (s *Sale) hash(noun string) map[string]string {
	fields := map[string]string{}
	names, _ := s.c.server.HKeys(s.key(noun)) // an error says that there is no such key
	for _, name := range names {
		if name != "" { // the sentinel
			fields[name] = s.c.server.HGet(s.key(noun), name)
		}
	}
	return fields
}

// Pending are the reservations of the open epoch.
func (s *Sale) Pending() map[string]model.Reservation {
	var ids []string
	for id := range s.hash("pending") {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return map[string]model.Reservation{}
	}
	held, err := s.c.Store.Held(context.Background(), s.ID, s.Epoch(), ids)
	if err != nil {
		s.c.t.Error(err)
	}
	return held
}

// Due tells when orders were published that repair looks at.
func (s *Sale) Due() map[string]time.Time { return s.scores("due", "") }

// Cooling tells until when users wait before another order.
func (s *Sale) Cooling() map[string]time.Time { return s.scores("closed", "/") }

func (s *Sale) scores(noun, prefix string) map[string]time.Time {
	scores := map[string]time.Time{}
	all, _ := s.c.server.SortedSet(s.key(noun)) // an error says that there is no such key
	for member, ms := range all {
		if name, is := strings.CutPrefix(member, prefix); is && name != "" {
			scores[name] = time.UnixMilli(int64(ms))
		}
	}
	return scores
}

// Mark marks a user as the buyer of an order.
func (s *Sale) Mark(userID, orderID string) { s.c.server.HSet(s.key("buyers"), userID, orderID) }

// Hold makes an order pending, and neither marks its user nor notes it as due.
func (s *Sale) Hold(order model.Order) {
	s.c.server.HSet(s.key("pending"), order.ID, fmt.Sprintf("%s %d %d %s %d",
		order.UserID, order.CreatedAt.UnixMicro(), order.Price, order.Currency, s.Epoch()))
}

// Note notes an order as published.
func (s *Sale) Note(orderID string, at time.Time) {
	_, _ = s.c.server.ZAdd(s.key("due"), float64(at.UnixMilli()), orderID)
}

// Cool makes a user wait before another order.
func (s *Sale) Cool(userID string, until time.Time) {
	_, _ = s.c.server.ZAdd(s.key("closed"), float64(until.UnixMilli()), "/"+userID)
}

// Drop loses an entry of buyers, pending or due.
func (s *Sale) Drop(noun, name string) {
	if noun == "due" {
		_, _ = s.c.server.ZRem(s.key(noun), name)
		return
	}
	s.c.server.HDel(s.key(noun), name)
}
