package handler

import (
	"bytes"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func someOrders() map[string]model.Order { // by what is special about them
	at := time.Date(2030, 1, 2, 3, 4, 5, 678000, time.UTC)
	later := at.Add(15*time.Minute + time.Nanosecond)
	unpaid := model.Order{
		ID: "0abc.v-1", VoucherID: "v-1", UserID: "issuer:user_1.x", Status: model.OrderUnpaid, Price: 1000, Currency: "CNY",
		CreatedAt: at, ExpiresAt: &later, UnpaidAt: &at,
	}
	processing, failed, paid, odd, elsewhere, late := unpaid, unpaid, unpaid, unpaid, unpaid, unpaid
	processing.Status, processing.ExpiresAt, processing.UnpaidAt = model.OrderProcessing, nil, nil
	failed.Reason, failed.ExpiresAt = "SOLD_OUT", nil
	paid.PaidAt = &later
	odd.UserID = "a\"b\\c<d>é\u2028\x00"
	elsewhere.CreatedAt = at.In(time.FixedZone("east", 3600))
	late.CreatedAt = at.AddDate(7969, 0, 0)
	return map[string]model.Order{
		"unpaid": unpaid, "processing": processing, "failed": failed, "paid": paid, "odd": odd, "elsewhere": elsewhere,
		"zero": {}, "late": late,
	}
}

// TestDocumentsAreThoseOfTheLibrary: what is written without the library is what the library would have written.
func TestDocumentsAreThoseOfTheLibrary(t *testing.T) {
	t.Parallel()
	documents := map[string]any{"a map": map[string]string{"a": "b"}}
	usual := map[string]bool{"unpaid": true, "processing": true, "failed": true, "late": true, "zero": true}
	for name, order := range someOrders() {
		documents[name] = order
	}
	for _, code := range model.Codes() {
		name := string(code)
		documents[name] = problemOf(&model.Error{Code: code, Detail: "It is so.", RetryAfter: time.Second})
		usual[name] = code != model.CodeValidation
	}
	begin := time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("west", -3600))
	documents["all members"] = problemOf(&model.Error{
		Code: model.CodeNotStarted, OrderID: "o.v", OrderStatus: model.OrderUnpaid, BeginAt: begin,
	})
	usual["all members"] = true
	documents["checks"] = &Problem{Checks: map[string]string{"redis": "ok"}}
	documents["escapes"] = problemOf(&model.Error{Code: model.CodeConflict, Detail: "a \"quoted\" <word>\n"})

	for name, document := range documents {
		got, ok := appendDocument([]byte("before"), document)
		check.Equal(t, name+" is usual", ok, usual[name])
		var want bytes.Buffer
		err := writeJSON(&want, document)
		if ok && (err != nil || string(got) != "before"+want.String()) {
			t.Errorf("%s: %s, want %s, %v", name, got, want.String(), err)
		}
	}
}

// BenchmarkDocument measures what it saves to write documents without the library.
func BenchmarkDocument(b *testing.B) {
	for name, document := range map[string]any{"order": someOrders()["processing"], "problem": problemOf(model.SoldOut())} {
		b.Run("usual/"+name, func(b *testing.B) {
			b.ReportAllocs()
			var text []byte
			for b.Loop() {
				text, _ = appendDocument(text[:0], document)
			}
		})
		b.Run("library/"+name, func(b *testing.B) {
			b.ReportAllocs()
			var text bytes.Buffer
			for b.Loop() {
				text.Reset()
				check.Must(b, writeJSON(&text, document))
			}
		})
	}
}
