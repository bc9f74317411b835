package sale

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// backlogEvery is between two looks of the watch at the queue.
const backlogEvery = 250 * time.Millisecond

func TestOldBacklogPromisesNothing(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.buys(t, "alice")
		for age, wait := range map[time.Duration]time.Duration{
			30*time.Second + time.Millisecond: time.Second, // 30 s is the limit
			35 * time.Second:                  5 * time.Second,
			time.Hour:                         30 * time.Second,
		} {
			s.line.with(func() { s.line.backlog = model.Backlog{Age: age, Messages: 7} })
			servicetest.Pass(backlogEvery + time.Millisecond)
			before := s.hot.Calls("Reserve")
			check.Equal(t, fmt.Sprint("when to come again to a backlog that is old ", age), s.refused(t, "bob", model.CodeUnavailable).RetryAfter, wait)
			check.Equal(t, "calls for a unit", s.hot.Calls("Reserve"), before)
		}
		s.line.with(func() { s.line.backlog.Age = 30 * time.Second })
		servicetest.Pass(backlogEvery + time.Millisecond)
		s.buys(t, "bob")
	})
}

// What is known without the queue is told whatever its state is.
func TestOldBacklogHidesNoOtherAnswer(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		order := s.buys(t, "alice")
		s.line.with(func() { s.line.backlog.Age = time.Hour })
		servicetest.Pass(backlogEvery + time.Millisecond)
		refused := s.refused(t, "alice", model.CodeAlreadyOrdered)
		check.That(t, refused.OrderID == order.ID && refused.OrderStatus == model.OrderProcessing, "%+v, want %s", refused, order.ID)
		s.refused(t, "bob", model.CodeUnavailable)
		s.sale.Set("end_us", time.Now().UnixMicro())
		servicetest.Pass(900 * time.Millisecond)
		s.refused(t, "bob", model.CodeEnded)
	})
}

func TestQueueThatIsAwayPromisesNothingAfterAFewSeconds(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		servicetest.Pass(time.Minute)
		s.line.with(func() { s.line.away = errors.New("no responders") })
		servicetest.Pass(3*time.Second - 2*backlogEvery)
		s.buys(t, "alice") // a leader is elected, a server restarts
		servicetest.Pass(3 * backlogEvery)
		before := s.hot.Calls("Reserve")
		s.refused(t, "bob", model.CodeUnavailable)
		check.Equal(t, "calls for a unit", s.hot.Calls("Reserve"), before)
		s.line.with(func() { s.line.away = nil })
		servicetest.Pass(backlogEvery + time.Millisecond)
		s.buys(t, "bob")
	})
}

// The oldest message is of another voucher: this one sells on, and refuses for
// its own messages only.
func TestOldBacklogOfAnotherVoucherRefusesNothing(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.line.with(func() {
			s.line.backlog = model.Backlog{Age: time.Hour, Messages: 7}
			s.line.own = map[string]model.Backlog{"v0": {Age: time.Hour, Messages: 5}, "v1": {Age: time.Second, Messages: 2}}
		})
		servicetest.Pass(backlogEvery + time.Millisecond)
		for i := range 8 {
			s.buys(t, fmt.Sprint("user", i))
			servicetest.Pass(time.Second / 2)
		}
		s.line.with(func() { s.line.own["v1"] = model.Backlog{Age: 40 * time.Second, Messages: 2} })
		servicetest.Pass(15 * time.Second) // it was known that none of its messages could be half as old as it may be
		check.Equal(t, "when to come again", s.refused(t, "bob", model.CodeUnavailable).RetryAfter, 10*time.Second)
		s.line.with(func() { s.line.own["v1"] = model.Backlog{} })
		servicetest.Pass(backlogEvery + time.Millisecond)
		s.buys(t, "bob")
	})
}

// While everybody is refused, those who ask share the calls to the hot copy.
func TestOldBacklogAsksTheHotCopyForManyAtOnce(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.buys(t, "alice")
		s.line.with(func() { s.line.backlog.Age = time.Hour })
		servicetest.Pass(2*backlogEvery + time.Millisecond)
		var asking sync.WaitGroup
		for i := range 300 {
			asking.Go(func() { s.refused(t, fmt.Sprint("user", i), model.CodeUnavailable) })
		}
		asking.Wait()
		s.refused(t, "alice", model.CodeAlreadyOrdered)
		if calls := s.hot.Calls("OrdersOf"); calls == 0 || calls > 20 {
			t.Errorf("%d calls for 301 requests", calls)
		}
	})
}
