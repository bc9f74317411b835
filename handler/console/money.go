package console

import (
	"strconv"
	"strings"

	"golang.org/x/text/currency"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"seckill/handler/wire"
	"seckill/model"
)

// money writes and reads amounts of the deployment's currency as people do.
type money struct {
	currency string
	decimals int // ISO 4217: how many digits the minor unit has
}

func newMoney(code string) money { return money{code, wire.Decimals(code)} }

// in writes minor units as people of a language do: as the browsers' Intl.NumberFormat does, so that pages of the
// server and scripts say the same.
func (m money) in(tag string) func(minor int64) string {
	symbol := m.currency
	if unit, err := currency.ParseISO(m.currency); err == nil {
		symbol = message.NewPrinter(language.Make(tag)).Sprint(currency.Symbol(unit))
		symbol = strings.Replace(symbol, "￥", "¥", 1) // browsers have the narrow one
	}
	if strings.Trim(symbol, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		symbol += "\u00a0"
	}
	return func(minor int64) string { return symbol + grouped(m.plain(minor)) }
}

// grouped puts a comma after each thousand of a number.
func grouped(number string) string {
	whole, fraction, found := strings.Cut(number, ".")
	for at := len(whole) - 3; at > 0; at -= 3 { //nolint:mnd // a thousand
		whole = whole[:at] + "," + whole[at:]
	}
	if found {
		whole += "." + fraction
	}
	return whole
}

// plain is an amount without the currency, as it is typed.
func (m money) plain(minor int64) string { return wire.Decimal(minor, m.decimals) }

// parse reads what a person has typed into minor units.
func (m money) parse(location, text string) (int64, error) {
	refused := model.Invalid(location, "must be an amount like %s", m.plain(1000))
	whole, fraction, _ := strings.Cut(strings.TrimSpace(text), ".")
	if whole == "" || len(fraction) > m.decimals || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, refused
	}
	minor, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", m.decimals-len(fraction)), 10, 64)
	if err != nil {
		return 0, refused
	}
	return minor, nil
}
