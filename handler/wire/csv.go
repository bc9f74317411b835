package wire

import (
	"encoding/csv"
	"strconv"
	"strings"
	"time"

	"seckill/model"
)

// CSV is the media type of exports for programs (RFC 4180): each value is exact.
const CSV = "text/csv; charset=utf-8"

// lines is a file of CSV.
type lines struct {
	export *export
	csv    *csv.Writer
	headed bool
}

func newLines(e *export) *lines {
	l := &lines{export: e, csv: csv.NewWriter(e)}
	l.csv.UseCRLF = true // RFC 4180, 2.1
	return l
}

func (l *lines) row(order model.Order) error {
	if err := l.head(); err != nil {
		return err
	}
	return l.csv.Write(cells(order))
}

func (l *lines) head() error {
	if l.headed {
		return nil
	}
	l.headed = true
	l.export.begin()
	return l.csv.Write(columns())
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
		order.CreatedAt.UTC().Format(time.RFC3339Nano), instant(order.ExpiresAt), instant(order.PaidAt), instant(order.ClosedAt),
	}
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
