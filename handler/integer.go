package handler

import (
	"encoding/json"
	"strconv"
	"strings"
)

// maxDigits is how many digits an integer may have that plainInteger writes out. Every
// integer of so many fits into an int64, and amounts are bounded far below it.
const maxDigits = 18

// plainInteger rewrites 1e3 and 1000.0, which are integers in JSON and what some
// languages write for them, as the 1000 that Go decodes into an int64. It goes by the
// digits, because a float64 would round 1000.00000000000001 to an integer that nobody
// sent. What is no integer becomes a mark, because huma would round it, too. An integer
// that is too long stays as it is: huma says which bound it exceeds.
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

// cutExponent splits a number without its sign. An exponent out of bounds becomes the
// bound on its side, for which no body has digits enough to be an int64 all the same.
func cutExponent(unsigned string) (mantissa string, exponent int) {
	at := strings.IndexAny(unsigned, "eE")
	if at < 0 {
		return unsigned, 0
	}
	bounded, _ := strconv.ParseInt(unsigned[at+1:], 10, exponentBits) // with its error it returns the bound
	return unsigned[:at], int(bounded)
}
