package wire

import (
	"strconv"
	"strings"

	"golang.org/x/text/currency"
)

// usualDecimals are those of most currencies, and of one that is not known.
const usualDecimals = 2

// Decimals is how many digits the minor unit of a currency has (ISO 4217), such as 2 of CNY and 0 of JPY.
func Decimals(code string) int {
	unit, err := currency.ParseISO(code)
	if err != nil {
		return usualDecimals
	}
	decimals, _ := currency.Standard.Rounding(unit)
	return decimals
}

// Decimal is an amount in minor units as it is typed, without its currency.
func Decimal(minor int64, decimals int) string {
	digits, sign := strconv.FormatInt(minor, 10), ""
	if minor < 0 {
		sign, digits = "-", digits[1:]
	}
	if decimals == 0 {
		return sign + digits
	}
	if short := decimals + 1 - len(digits); short > 0 {
		digits = strings.Repeat("0", short) + digits
	}
	whole := len(digits) - decimals
	return sign + digits[:whole] + "." + digits[whole:]
}
