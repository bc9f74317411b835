package hotcopy_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// BenchmarkHotCopyReserve measures how many orders a second one caller after
// the other reserves of one voucher, by the size of the group:
//
//	go test ./repository/hotcopy -run '^$' -bench HotCopy -benchtime 2s
func BenchmarkHotCopyReserve(b *testing.B) {
	for _, size := range []int{1, 6, 100, 500} {
		for _, locks := range []bool{false, true} {
			b.Run(fmt.Sprintf("group=%d/locks=%v", size, locks), func(b *testing.B) {
				s := newSale(b, testserver.SharedRedis(b), hotcopy.Options{LockKeys: locks}, model.MaxAmount)
				groups := make([][]model.ReserveRequest, b.N)
				for i := range groups {
					for n := range size {
						id := fmt.Sprintf("0199c0de-7a11-7%03d-8000-%012d", n, i)
						groups[i] = append(groups[i], model.ReserveRequest{
							OrderID: model.OrderID(id, s.v.ID), VoucherID: s.v.ID, UserID: fmt.Sprintf("user:%d:%d", i, n),
						})
					}
				}
				before := redisCPU(b, s)
				b.ResetTimer()
				for _, group := range groups {
					answers := check.Value(s.copies.Reserve(b.Context(), group))(b)
					check.Must(b, answers[0].Err)
				}
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "orders/s")
				b.StopTimer()
				b.ReportMetric((redisCPU(b, s)-before)*1e6/float64(b.N*size), "redis-µs/order")
				check.Must(b, s.client.Unlink(b.Context(), s.head(), s.key("buyers"), s.key("pending"), s.key("due"), s.key("closed")).Err())
			})
		}
	}
}

// BenchmarkHotCopyGroups measures what an order costs Redis whose step it shares with 63 others, by how many vouchers
// these are of. What its own processor was asked for is counted, so the machine may do something else too:
//
//	make bench-go PKG=./repository/hotcopy ARGS='-bench=Groups -benchtime=1000x'
func BenchmarkHotCopyGroups(b *testing.B) {
	const size = 64
	for _, vouchers := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("vouchers=%d", vouchers), func(b *testing.B) {
			server := testserver.Redis(b)
			s := newSale(b, server.URL(), hotcopy.Options{LockKeys: true}, model.MaxAmount)
			ids := []string{s.v.ID}
			for len(ids) < vouchers {
				s.v = voucherOf(newID(b), model.MaxAmount)
				s.rebuild(1, 0, nil, nil)
				ids = append(ids, s.v.ID)
			}
			asked, reserved := make([][]model.ReserveRequest, b.N), make([][]model.Reservation, b.N)
			for i := range asked {
				for n := range size {
					at := i*size + n
					s.v.ID = ids[at%vouchers]
					asked[i] = append(asked[i], s.admission(user(at)))
				}
			}
			step := func(name string, do func(i int)) {
				before := redisCPU(b, s)
				for i := range b.N {
					do(i)
				}
				b.ReportMetric((redisCPU(b, s)-before)*1e6/float64(b.N*size), name+"-µs/order")
			}
			b.ResetTimer()
			step("reserve", func(i int) {
				for _, answer := range check.Value(s.copies.Reserve(b.Context(), asked[i]))(b) {
					check.Must(b, answer.Err)
					reserved[i] = append(reserved[i], answer.Reservation)
				}
			})
			step("confirm", func(i int) { check.Must(b, check.ErrorOf(s.copies.Confirm(b.Context(), reserved[i]))) })
			step("settle", func(i int) {
				var orders []model.Order
				for _, r := range reserved[i] {
					orders = append(orders, r.Order)
				}
				check.Must(b, s.copies.Settle(b.Context(), orders))
			})
		})
	}
}

// redisCPU is how many seconds of a processor Redis has used: unlike the time
// that passed it does not depend on what else the machine does.
func redisCPU(b *testing.B, s *sale) (seconds float64) {
	b.Helper()
	for line := range strings.SplitSeq(s.client.Info(b.Context(), "cpu").Val(), "\r\n") {
		if name, value, _ := strings.Cut(line, ":"); name == "used_cpu_user" || name == "used_cpu_sys" {
			used := check.Value(strconv.ParseFloat(value, 64))(b)
			seconds += used
		}
	}
	return seconds
}

// BenchmarkHotCopyRead measures one reading of a copy, and of a pending entry.
func BenchmarkHotCopyRead(b *testing.B) {
	s := newSale(b, testserver.SharedRedis(b), hotcopy.Options{}, 10)
	r := s.buy("bob")
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			s.read()
		}
	})
	b.Run("pending", func(b *testing.B) {
		for b.Loop() {
			_, _, err := s.copies.Pending(b.Context(), r.ID)
			check.Must(b, err)
		}
	})
	b.Run("confirm", func(b *testing.B) {
		for b.Loop() {
			check.Must(b, check.ErrorOf(s.copies.Confirm(b.Context(), []model.Reservation{r})))
		}
	})
}

// BenchmarkHotCopyRelease measures how many units a second come back, by how many share a call of the caller.
func BenchmarkHotCopyRelease(b *testing.B) {
	for _, size := range []int{1, 1000} {
		b.Run(fmt.Sprintf("group=%d", size), func(b *testing.B) {
			s := newSale(b, testserver.SharedRedis(b), hotcopy.Options{}, model.MaxAmount)
			store := another(s.client)
			var took time.Duration
			var computed float64 // by Redis, seconds
			for round := range b.N {
				var bought []model.ReserveRequest
				var back []model.Release
				for n := range size {
					id, user := model.OrderID(fmt.Sprintf("o%d-%d", round, n), s.v.ID), fmt.Sprintf("user:%d:%d", round, n)
					bought = append(bought, model.ReserveRequest{OrderID: id, VoucherID: s.v.ID, UserID: user})
					back = append(back, model.Release{OrderID: id, VoucherID: s.v.ID, UserID: user})
				}
				check.Must(b, check.ErrorOf(store.Reserve(b.Context(), bought)))
				used, began := redisCPU(b, s), time.Now()
				if applied, err := store.ReleaseAll(b.Context(), s.v.ID, back); !applied || err != nil {
					b.Fatalf("applied %v, %v", applied, err)
				}
				took += time.Since(began)
				computed += redisCPU(b, s) - used
			}
			b.ReportMetric(float64(b.N*size)/took.Seconds(), "units/s")
			b.ReportMetric(computed*1e6/float64(b.N*size), "redis-µs/unit")
		})
	}
}
