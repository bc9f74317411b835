package worker_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// After Redis has lost everything, what is on sale does not wait for what will be.
func TestWhatIsOnSaleIsRebuiltFirst(t *testing.T) {
	t.Parallel()
	const upcoming = 1000
	b := newBackstage(t, testserver.Redis(t).URL())
	for i := range upcoming {
		must(t, check.ErrorOf(b.vouchers.Create(t.Context(), fmt.Sprintf("00-%d", i), model.NewVoucher{ // before the other
			Title: "x", Stock: 1, State: model.VoucherPublished, BeginAt: time.Now().Add(30 * time.Minute), EndAt: time.Now().Add(time.Hour),
		}, model.Idempotency{})))
	}
	selling := b.voucher(t, 10)
	loaded := func() (n int) {
		ids := make([]string, upcoming)
		for i := range ids {
			ids[i] = fmt.Sprintf("00-%d", i)
		}
		copies := check.Value(b.hot.Read(t.Context(), ids))(t)
		for _, hot := range copies {
			if hot.State == model.CopyOpen {
				n++
			}
		}
		return n
	}
	await(t, "all are loaded", 3*time.Minute, func() bool { return loaded() == upcoming })
	must(t, b.redis.FlushAll(t.Context()).Err())
	took := await(t, "the sale is open again", 30*time.Second, func() bool {
		copies, err := b.hot.Read(t.Context(), []string{selling.ID})
		return err == nil && copies[selling.ID].State == model.CopyOpen
	})
	before := loaded()
	t.Logf("open again after %v, behind %d of the others", took, before)
	if before > upcoming/4 {
		t.Errorf("%d others came first", before)
	}
}

// In a running sale differences are found too, and none that is not there.
func TestDriftIsFoundWhileASaleRuns(t *testing.T) {
	t.Parallel()
	b := newBackstage(t, testserver.Redis(t).URL())
	v := b.voucher(t, 1_000_000)
	b.buy(t, v.ID, 0, 100)
	await(t, "they are persisted", time.Minute, b.quiet(t, v.ID))
	<-time.After(5 * time.Second) // what is younger than this may be on its way
	copies := check.Value(b.hot.Read(t.Context(), []string{v.ID}))(t)
	must(t, b.redis.HDel(t.Context(), fmt.Sprintf("seckill:v1:{%s}:%d:buyers", v.ID, copies[v.ID].Epoch), "user7").Err())

	var rush sync.WaitGroup
	defer rush.Wait()
	done := make(chan struct{})
	defer close(done)
	rush.Go(func() {
		for n := 1000; ; n += 20 {
			b.buy(t, v.ID, n, n+20)
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	var first, second, reserved int
	began := time.Now() // until orders were under way between two of the comparisons
	for n := 0; n < 5 || reserved == 0 && time.Since(began) < 10*time.Second; n++ {
		found, certain, err := b.Reconciler.CompareTwice(t.Context(), v.ID)
		must(t, err)
		first, second = max(first, found), max(second, certain)
		copies := check.Value(b.hot.Read(t.Context(), []string{v.ID}))(t)
		reserved = max(reserved, int(copies[v.ID].Reserved))
	}
	if first != 1 || second != 1 || reserved == 0 {
		t.Errorf("%d differences, %d of them certain, while up to %d were reserved; want one", first, second, reserved)
	}
}
