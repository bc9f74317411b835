package console

import (
	"strconv"
	"strings"

	"seckill/handler/wire"
	"seckill/model"
)

// money writes and reads amounts of the deployment's currency as people do.
type money struct {
	currency string
	decimals int // ISO 4217: how many digits the minor unit has
}

func newMoney(code string) money { return money{code, wire.Decimals(code)} }

// format writes minor units.
func (m money) format(minor int64) string { return m.plain(minor) + " " + m.currency }

// plain is format without the currency, as it is typed.
func (m money) plain(minor int64) string {
	digits := strconv.FormatInt(minor, 10)
	if m.decimals == 0 {
		return digits
	}
	if short := m.decimals + 1 - len(digits); short > 0 {
		digits = strings.Repeat("0", short) + digits
	}
	whole := len(digits) - m.decimals
	return digits[:whole] + "." + digits[whole:]
}

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
