package wire

import "golang.org/x/text/currency"

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
