package handler

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func someOrders() map[string]model.Order { // by what is special about them
	at := time.Date(2030, 1, 2, 3, 4, 5, 678000, time.UTC)
	later := at.Add(15*time.Minute + time.Nanosecond)
	unpaid := model.Order{
		ID: "0abc.v-1", VoucherID: "v-1", UserID: "issuer:user_1.x", Status: model.OrderUnpaid, Price: 1000,
		Currency:  "CNY",
		CreatedAt: at, ExpiresAt: &later, UnpaidAt: &at,
	}
	processing, failed, paid, odd, elsewhere, late := unpaid, unpaid, unpaid, unpaid, unpaid, unpaid
	processing.Status, processing.ExpiresAt, processing.UnpaidAt = model.OrderProcessing, nil, nil
	failed.Reason, failed.ExpiresAt = "SOLD_OUT", nil
	paid.PaidAt, paid.Code, paid.SealedCode = &later, "7K3M-9QWD", "x"
	odd.UserID = "a\"b\\c<d>é\u2028\x00"
	elsewhere.CreatedAt = at.In(time.FixedZone("east", 3600))
	late.CreatedAt = at.AddDate(7969, 0, 0)
	return map[string]model.Order{
		"unpaid": unpaid, "processing": processing, "failed": failed, "paid": paid, "odd": odd, "elsewhere": elsewhere,
		"zero": {}, "late": late,
	}
}

func TestDocumentsAreThoseOfTheLibrary(t *testing.T) {
	t.Parallel()
	documents := map[string]any{"a map": map[string]string{"a": "b"}}
	usual := map[string]bool{"unpaid": true, "paid": true, "processing": true, "failed": true, "late": true, "zero": true}
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

func TestPlainInteger(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("0", 15000)
	for text, want := range map[string]any{
		"-0": json.Number("-0"), "9007199254740993": json.Number("9007199254740993"), "1E+3": json.Number("1000"), "-2.50e1": json.Number("-25"),
		"0e9": json.Number("0"), "-0.0": json.Number("0"), "0e999999999999999999999": json.Number("0"),
		"999999999999999999.0": json.Number("999999999999999999"), "100000000000000000e1": json.Number("100000000000000000e1"),
		"0." + zeros + "1e15001": json.Number("1"), "1" + zeros + "e-15000": json.Number("1"),
		"1" + zeros + "e-15001": fractionValue{},
		"1000.00000000000001":   fractionValue{}, "1e-400": fractionValue{}, "1e-999999999999999999999": fractionValue{}, "15e-1": fractionValue{},
		"1e400": json.Number("1e400"), "-1e999999999999999999999": json.Number("-1e999999999999999999999"),
	} {
		check.Equal(t, text[:min(len(text), 60)], plainInteger(json.Number(text)), want)
	}
}

// A number stays what it is, whatever it looks like, and is a mark when it is no integer.
func TestPlainIntegerIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		exact, _ := new(big.Rat).SetString(text)
		number, integer := plainInteger(json.Number(text)).(json.Number)
		if integer != exact.IsInt() {
			t.Fatalf("an integer: %t, want %t", integer, exact.IsInt())
		}
		if !integer {
			return
		}
		if got, ok := new(big.Rat).SetString(number.String()); !ok || got.Cmp(exact) != 0 {
			t.Fatalf("became %s", number)
		}
		_, err := number.Int64()
		if fits := len(exact.Num().String()) <= maxDigits; err == nil && !exact.Num().IsInt64() || err != nil && fits {
			t.Fatalf("became %s", number)
		}
	})
}
