package handler

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"seckill/internal/workshop/check"
)

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
