package handler

import (
	"encoding/json"
	"strconv"
	"strings"
)

// maxDigits is the length of the longest integer that plainInteger writes out. Every
// integer with at most 18 digits fits into an int64, and no amount needs more.
const maxDigits = 18

// plainInteger rewrites an integer such as 1e3 or 1000.0 as 1000, which is what Go decodes
// into an int64: some languages send integers in these forms, and JSON allows them. It
// works on the digits, because a float64 rounds 1000.00000000000001 to 1000. A number that
// is not an integer becomes a fractionValue, because huma rounds too. An integer of more
// than maxDigits digits is returned unchanged, and huma names the bound that it exceeds.
func plainInteger(number json.Number) any {
	text := number.String()
	if !strings.ContainsAny(text, ".eE") {
		return number
	}
	unsigned, negative := strings.CutPrefix(text, "-")
	mantissa, exponent := cutExponent(unsigned)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction // the number is these digits, times 10 to the power of exponent - len(fraction)
	digits := strings.TrimRight(all, "0")
	zeros := exponent - len(fraction) + len(all) - len(digits)
	digits = strings.TrimLeft(digits, "0")
	switch {
	case digits == "":
		return json.Number("0")
	case zeros < 0:
		return fractionValue{}
	case len(digits)+zeros > maxDigits:
		return number
	case negative:
		digits = "-" + digits
	}
	return json.Number(digits + strings.Repeat("0", zeros))
}

// exponentBits bounds an exponent, so that its sum with the length of a body is an int
// on every machine.
const exponentBits = 31

// cutExponent splits a number without a sign into mantissa and exponent. An exponent that
// is out of bounds becomes the nearest bound. That changes no result: no body is long
// enough for a mantissa that would bring such a number back into an int64.
func cutExponent(unsigned string) (mantissa string, exponent int) {
	at := strings.IndexAny(unsigned, "eE")
	if at < 0 {
		return unsigned, 0
	}
	bounded, _ := strconv.ParseInt(unsigned[at+1:], 10, exponentBits) // with its error it returns the bound
	return unsigned[:at], int(bounded)
}
