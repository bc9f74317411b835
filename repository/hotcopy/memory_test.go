package hotcopy_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/model"
)

// memory is how many bytes Redis uses, once nothing waits to be freed in the
// background.
func (s *sale) memory() int64 {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		info := s.client.Info(s.t.Context(), "memory").Val()
		if strings.Contains(info, "lazyfree_pending_objects:0\r\n") {
			_, rest, _ := strings.Cut(info, "used_memory:")
			used, _, _ := strings.Cut(rest, "\r")
			n, err := strconv.ParseInt(used, 10, 64)
			must(s.t, err)
			return n
		}
		if time.Now().After(deadline) {
			s.t.Fatal("Redis is freeing memory still")
		}
	}
}

// However often a sale is rebuilt, and wherever rebuilds are given up, Redis holds
// two copies of it at the most.
func TestMemoryNeverExceedsTwoCopies(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t, "--appendonly", "no")
	const buyers, rebuilds = 20_000, 20
	s.v.Stock = buyers
	var live []model.Order
	var carried []model.Reservation
	for i := range buyers {
		order := model.Order{ID: fmt.Sprintf("0199c0de-7a11-7000-8000-%012d.%s", i, s.v.ID), UserID: fmt.Sprintf("user:%d", i), Currency: "CNY"}
		if i%4 == 0 {
			carried = append(carried, model.Reservation{Order: order, Epoch: 1})
		} else {
			live = append(live, order)
		}
	}
	before := s.memory()
	s.rebuild(2, 1, live, carried)
	one := s.memory() - before
	bound := func(when string, copies float64) {
		t.Helper()
		if used := s.memory() - before; float64(used) > (copies+0.3)*float64(one)+1<<20 {
			t.Errorf("%s: %d bytes are used, one copy takes %d", when, used, one)
		}
	}
	for range rebuilds {
		s.rebuild(s.epoch+1, s.epoch, live, carried)
		bound("rebuilt", 1)
	}
	opened := s.epoch
	for epoch := opened + 1; epoch < opened+rebuilds; epoch++ { // whose builders died
		must(t, s.load(epoch, opened, live, carried))
		bound("loaded and left", 2)
	}
	for epoch := opened + rebuilds; epoch < opened+2*rebuilds; epoch++ { // opened in the database alone
		must(t, s.load(epoch, epoch-1, live, carried))
		bound("loaded and opened in the database alone", 2)
	}
	last := opened + 2*rebuilds
	must(t, s.load(last, last-1, live, carried))
	s.copies.Abandon(t.Context(), s.v.ID, last)
	bound("given up", 1)
	wantErr(t, s.copies.Load(t.Context(), s.v.ID, last, live, carried), model.ErrSuperseded) // one that comes late
	s.rebuild(last+1, last-1, live, carried)
	bound("rebuilt in the end", 1)
	s.wants(model.CopyOpen, 0, int64(len(carried)), buyers)
}

// What expires is freed in the background: an expiring hash of a million buyers
// would stop Redis for most of a second.
func TestExpiryStopsNobody(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t, "--appendonly", "no")
	var live []model.Order
	for i := range 20_000 {
		live = append(live, model.Order{ID: fmt.Sprint(i), UserID: user(i)})
	}
	s.rebuild(2, 1, live, nil)
	s.memory()
	must(t, s.client.ConfigResetStat(t.Context()).Err())
	must(t, s.client.PExpire(t.Context(), s.key("buyers"), time.Millisecond).Err())
	for deadline := time.Now().Add(20 * time.Second); s.client.Exists(t.Context(), s.key("buyers")).Val() != 0; {
		if time.Now().After(deadline) {
			t.Fatal("it does not expire")
		}
	}
	s.memory()
	if info := s.client.Info(t.Context(), "memory").Val(); !strings.Contains(info, "lazyfreed_objects:1\r\n") {
		t.Errorf("it was not freed in the background: %s", info)
	}
}
