package wire

import (
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"time"

	"seckill/model"
)

// CSV is the media type of exports as lines (RFC 4180). Those for programs have each value as
// it is; see People for the others.
const CSV = "text/csv; charset=utf-8"

// lines is a file of CSV.
type lines struct {
	export *export
	csv    *csv.Writer
	people *People // nil: programs
	headed bool
}

func newLines(e *export, people *People) *lines {
	l := &lines{export: e, csv: csv.NewWriter(e), people: people}
	l.csv.UseCRLF = true // RFC 4180, 2.1
	return l
}

func (l *lines) row(order model.Order) error {
	if err := l.head(); err != nil {
		return err
	}
	if l.people != nil {
		return l.csv.Write(l.people.cells(order))
	}
	return l.csv.Write(cells(order))
}

func (l *lines) head() error {
	if l.headed {
		return nil
	}
	l.headed = true
	l.export.begin()
	if l.people == nil {
		return l.csv.Write(columns())
	}
	if _, err := l.export.Write([]byte(byteOrderMark)); err != nil {
		return err
	}
	return l.csv.Write(l.people.columns())
}

func (l *lines) flush() error {
	l.csv.Flush()
	if err := l.csv.Error(); err != nil {
		return err
	}
	return l.export.flush()
}

func (l *lines) finish() error {
	if err := l.head(); err != nil {
		return err
	}
	return l.flush()
}

func (l *lines) close() error { return nil }

func cells(order model.Order) []string {
	return []string{
		text(order.ID), text(order.VoucherID), text(order.UserID), text(string(order.Status)), text(order.Reason),
		strconv.FormatInt(order.Price, 10), text(order.Currency),
		order.CreatedAt.UTC().Format(time.RFC3339Nano), instant(order.ExpiresAt), instant(order.PaidAt), instant(order.ClosedAt), instant(order.RedeemedAt),
	}
}

// byteOrderMark tells Excel that a file is in UTF-8.
const byteOrderMark = "\ufeff"

// People are whom an export is for: it has their words, titles, amounts as decimals, and times
// of their zone as spreadsheets read them.
type People struct {
	Text  func(key string) string // in their language
	Title func(voucherID string) string
	Zone  *time.Location
}

func (p *People) columns() []string {
	names := []string{"Order", "Voucher", "User", "Status", "Reason", "Price", "Currency"}
	for i, name := range names {
		names[i] = p.Text(name)
	}
	for _, name := range []string{"Made at", "To be paid until", "Paid at", "Used at", "Closed at"} {
		names = append(names, fmt.Sprintf("%s (%s)", p.Text(name), p.Zone))
	}
	return names
}

func (p *People) cells(order model.Order) []string {
	cells := []string{
		text(order.ID), text(p.Title(order.VoucherID)), text(order.UserID), text(p.Text(string(order.Status))), text(p.Text(order.Reason)),
		Decimal(order.Price, Decimals(order.Currency)), text(order.Currency),
	}
	for _, at := range []*time.Time{&order.CreatedAt, order.ExpiresAt, order.PaidAt, order.RedeemedAt, order.ClosedAt} {
		cell := ""
		if at != nil {
			cell = at.In(p.Zone).Format(time.DateTime)
		}
		cells = append(cells, cell)
	}
	return cells
}

// text guards a cell against spreadsheets that take it for a formula (OWASP, "CSV
// Injection"). The ids of users come from other issuers and may begin with a minus or an @.
func text(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r\n", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

func instant(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}
