package queue_test

import (
	"strings"
	"testing"

	"seckill/model"
	"seckill/queue"
)

// Whatever lies in the stream, decoding answers for all of it: with orders that
// make sense, and the rest as it is.
func FuzzDecode(f *testing.F) {
	order := text("a.v1", "u")
	for _, seed := range []string{
		"", "null", "{}", "[]", `{"v":1}`, `{"v":1,"orders":[]}`, `{"v":1,"orders":[` + order + `]}`,
		`{"v":1,"orders":[` + order + `,null,7,{}]}`, `{"v":1,"orders":{}}`, `{"v":"1","orders":[` + order + `]}`,
		`{"v":1,"orders":[` + order + `]} trailing`, `{"v":1e0,"orders":[` + order + `]}`, strings.Repeat("[", 20_000),
		`{"v":1,"orders":[{"id":"a.v1","user":"u","epoch":1e400,"created":1,"price":1,"currency":"CNY"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		good, flaws := queue.Decode(body, 7)
		if len(good)+flaws == 0 {
			t.Fatalf("nothing is said about %q", body)
		}
		for _, r := range good {
			voucher, ok := model.VoucherOf(r.ID)
			if !ok || voucher != r.VoucherID || !model.ValidUserID(r.UserID) || r.Sequence != 7 || r.Price < 0 ||
				r.Status != model.OrderProcessing || r.CreatedAt.Unix() < 0 {
				t.Fatalf("%q became %+v", body, r)
			}
		}
	})
}

func TestOversizeIsNotRead(t *testing.T) {
	t.Parallel()
	body := `{"v":1,"orders":[` + text("a.v1", "u") + `]` + strings.Repeat(" ", 600<<10) + `}`
	if good, flaws := queue.Decode([]byte(body), 1); len(good) != 0 || flaws != 1 {
		t.Errorf("%d orders, %d flaws", len(good), flaws)
	}
}
