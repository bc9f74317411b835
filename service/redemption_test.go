package service

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/vouchercode"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// codebook is a store of orders by their codes.
type codebook map[string]*model.Order

func (b codebook) Redeem(_ context.Context, hash []byte, _ string) (model.Order, error) {
	order := b[string(hash)]
	if order == nil {
		return model.Order{}, model.NotFound("code")
	}
	move, err := model.Move(order.Status, model.OrderRedeemed, model.MoverAdmin)
	if err != nil {
		return model.Order{}, err
	}
	*order = move.Apply(*order, time.Now())
	return *order, nil
}

// till is a service of redemptions with one paid order, and its code.
func till(t *testing.T) (*Redemptions, string) {
	t.Helper()
	keys := check.Value(vouchercode.NewKeys("a secret that has more than 32 bytes"))(t)
	codes := NewCodes(keys, slog.New(slog.DiscardHandler))
	sealed := codes.New("o1.v1")
	order := model.Order{ID: "o1.v1", UserID: "alice", Status: model.OrderPaid, SealedCode: string(sealed.Sealed)}
	s := NewRedemptions(codebook{string(sealed.Hash): &order}, codes)
	return s, codes.Show(t.Context(), order).Code
}

func TestRedeem(t *testing.T) {
	t.Parallel()
	s, code := till(t)
	order, err := s.Redeem(t.Context(), "boss", " "+code+" ")
	check.That(t, err == nil && order.Status == model.OrderRedeemed && order.Code == code, "%+v, %v", order, err)
	_, err = s.Redeem(t.Context(), "boss", code)
	check.Equal(t, "a code that was used", model.CodeOf(err), model.CodeIllegalState)
	_, err = s.Redeem(t.Context(), "boss", vouchercode.New().Reveal())
	check.Equal(t, "a code that no order has", model.CodeOf(err), model.CodeNotFound)
	_, err = s.Redeem(t.Context(), "boss", "7K3M")
	check.Equal(t, "a code that was mistyped", model.CodeOf(err), model.CodeValidation)
	none := NewRedemptions(codebook{}, nil)
	_, err = none.Redeem(t.Context(), "boss", code)
	check.Equal(t, "without a key", model.CodeOf(err), model.CodeUnavailable)
}

// Wrong codes slow an administrator down, also for the right one, and nobody else. Codes
// that were used are no guesses.
func TestWrongCodesAreSlowedDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, code := till(t)
		refused := 0
		for range 60 {
			_, err := s.Redeem(t.Context(), "mallory", vouchercode.New().Reveal())
			if model.CodeOf(err) == model.CodeRateLimited {
				refused++
			}
		}
		check.That(t, refused >= 30, "%d of 60 wrong codes were refused", refused)
		_, err := s.Redeem(t.Context(), "mallory", code)
		check.Equal(t, "the right code, after that", model.CodeOf(err), model.CodeRateLimited)
		if _, err := s.Redeem(t.Context(), "boss", code); err != nil {
			t.Errorf("another administrator: %v", err)
		}
		for range 60 {
			_, err := s.Redeem(t.Context(), "boss", code)
			check.Equal(t, "a used code, again and again", model.CodeOf(err), model.CodeIllegalState)
		}
		servicetest.Pass(longestWait)
		_, err = s.Redeem(t.Context(), "mallory", code)
		check.Equal(t, "after a while", model.CodeOf(err), model.CodeIllegalState)
	})
}

// slowBook answers after a second, as a database in trouble.
type slowBook struct{ codebook }

func (b slowBook) Redeem(ctx context.Context, hash []byte, adminID string) (model.Order, error) {
	servicetest.Pass(time.Second)
	return b.codebook.Redeem(ctx, hash, adminID)
}

// The tills of a shop may share one account: right codes are no wrong ones, however many are used at once.
func TestManyRightCodesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := check.Value(vouchercode.NewKeys("a secret that has more than 32 bytes"))(t)
		codes := NewCodes(keys, slog.New(slog.DiscardHandler))
		book := codebook{}
		s := NewRedemptions(slowBook{book}, codes)
		var right []string
		for range 100 {
			sealed := codes.New("o1.v1")
			order := model.Order{ID: "o1.v1", Status: model.OrderPaid, SealedCode: string(sealed.Sealed)}
			book[string(sealed.Hash)] = &order
			right = append(right, codes.Show(t.Context(), order).Code)
		}
		var tills sync.WaitGroup
		for _, code := range right {
			tills.Go(func() {
				if _, err := s.Redeem(t.Context(), "boss", code); err != nil {
					t.Errorf("a right code: %v", err)
				}
			})
		}
		tills.Wait()
	})
}
