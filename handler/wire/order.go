package wire

import (
	"archive/zip"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/xuri/excelize/v2"
	"golang.org/x/text/currency"

	"seckill/internal/budget"
	"seckill/model"
)

const rowsPerFlush = 500 // rows sent at a time, some 100 kB: bounded memory, and no packet for each row

// Media types of exports: lines (RFC 4180), and a workbook, where ids are texts, amounts numbers, times times.
const (
	CSV  = "text/csv; charset=utf-8"
	XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
)

var errHeadOnly = errors.New("only the header was asked for") // ends a HEAD request's export

// ExportOrders streams orders as CSV or, for people with a spreadsheet, as XLSX (format csv or xlsx), in a file of a
// name: each hands out the rows. Given people, the CSV is for them too. It sends nothing before the first row or the
// end is known. An error that comes after it has begun must cut the connection, so that half a file never looks whole.
func ExportOrders(
	w http.ResponseWriter, r *http.Request, name, format string, people *People,
	each func(row func(model.BookedOrder) error) error,
) (begun bool, err error) {
	e := &export{w: w, r: r, media: CSV, name: name + "." + format}
	text := &lines{export: e, csv: csv.NewWriter(e), people: people}
	text.csv.UseCRLF = true // RFC 4180, 2.1
	var file table = text
	if format == "xlsx" {
		e.media, file = XLSX, newWorkbook(e)
	}
	defer func() { err = errors.Join(err, file.close()) }()
	headOnly := r.Method == http.MethodHead
	err = each(func(order model.BookedOrder) error {
		if headOnly {
			return errHeadOnly
		}
		if people != nil {
			order.VoucherID, order.UserID = people.Title(order.VoucherID), cmp.Or(order.Buyer, order.UserID)
		}
		return file.row(order)
	})
	switch {
	case headOnly && (err == nil || errors.Is(err, errHeadOnly)):
		e.begin()
		err = nil
	case err == nil:
		err = file.finish()
	}
	return e.begun, err
}

type table interface {
	row(order model.BookedOrder) error
	finish() error // sends what was not sent yet
	close() error  // frees what it took, sent or not
}

// export is one answer with a file. It is the writer of the file.
type export struct {
	w           http.ResponseWriter
	r           *http.Request
	media, name string
	begun       bool
}

// begin sends the header, once. An answer to HEAD has GET's headers and nothing else (RFC 9110, 9.3.2).
func (e *export) begin() {
	if e.begun {
		return
	}
	e.begun = true
	header := e.w.Header()
	header.Set("Content-Type", e.media)
	header.Set("Content-Disposition", `attachment; filename="`+e.name+`"`)
	e.w.WriteHeader(http.StatusOK)
}

// Write implements io.Writer. It gives what it writes its time; a connection without a deadline has none to move.
func (e *export) Write(data []byte) (int, error) {
	e.begin()
	_ = http.NewResponseController(e.w).SetWriteDeadline(time.Now().Add(budget.Settled))
	return e.w.Write(data)
}

// flush sends what was written. A stream has no Content-Length, however short it is.
func (e *export) flush() error {
	if err := http.NewResponseController(e.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return e.r.Context().Err()
}

func columns() []string {
	return []string{
		"id", "voucher_id", "user_id", "status", "reason", "price", "currency",
		"created_at", "expires_at", "paid_at", "closed_at", "redeemed_at",
		"reference", "place", "received", "returned",
	}
}

// cells are an order's values in these columns, by what makes a cell of them.
func cells[T any](o model.BookedOrder, text func(string) T, money func(int64) T, instant func(*time.Time) T) []T {
	return []T{
		text(o.ID), text(o.VoucherID), text(o.UserID), text(string(o.Status)), text(o.Reason), money(o.Price), text(o.Currency),
		instant(&o.CreatedAt), instant(o.ExpiresAt), instant(o.PaidAt), instant(o.ClosedAt), instant(o.RedeemedAt),
		text(o.Reference), text(o.Place), money(o.Received), money(o.Returned),
	}
}

// People are whom an export is for: their words, titles, decimals, and zone for spreadsheets. Nil: it is for programs.
type People struct {
	Text  func(key string) string // in their language
	Title func(voucherID string) string
	Zone  *time.Location
}

// columns are named for people, who read when a code was used before when its order was closed.
func (p *People) columns() []string {
	if p == nil {
		return columns()
	}
	names := []string{"Order", "Voucher", "User", "Status", "Reason", "Price", "Currency"}
	for i, name := range names {
		names[i] = p.Text(name)
	}
	for _, name := range []string{"Made at", "To be paid until", "Paid at", "Used at", "Closed at"} {
		names = append(names, fmt.Sprintf("%s (%s)", p.Text(name), p.Zone))
	}
	for _, name := range []string{"Reference", "Place", "Received", "Given back"} {
		names = append(names, p.Text(name))
	}
	return names
}

func (p *People) cells(o model.BookedOrder) []string {
	layout, zone, decimals := time.RFC3339Nano, time.UTC, 0
	if p != nil {
		layout, zone, decimals = time.DateTime, p.Zone, Decimals(o.Currency)
		o.Status, o.Reason = model.OrderStatus(p.Text(string(o.Status))), p.Text(o.Reason)
		o.ClosedAt, o.RedeemedAt = o.RedeemedAt, o.ClosedAt // see columns
	}
	money := func(minor int64) string { return Decimal(minor, decimals) }
	return cells(o, text, money, func(at *time.Time) string {
		if at == nil {
			return ""
		}
		return at.In(zone).Format(layout)
	})
}

// text guards a cell against spreadsheets that see a formula (OWASP, "CSV Injection"): user ids may begin with @.
func text(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r\n", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

type lines struct {
	export *export
	csv    *csv.Writer
	people *People
	rows   int // the one with the names of the columns included
}

const byteOrderMark = "\ufeff" // tells Excel that a file is in UTF-8

func (l *lines) head() error {
	if l.rows > 0 {
		return nil
	}
	l.rows++
	l.export.begin()
	if l.people != nil {
		if _, err := l.export.Write([]byte(byteOrderMark)); err != nil {
			return err
		}
	}
	return l.csv.Write(l.people.columns())
}

func (l *lines) row(order model.BookedOrder) error {
	err := cmp.Or(l.head(), l.csv.Write(l.people.cells(order)))
	if l.rows++; err != nil || l.rows%rowsPerFlush != 1 {
		return err
	}
	return l.finish()
}

func (l *lines) finish() error {
	if err := l.head(); err != nil {
		return err
	}
	l.csv.Flush()
	if err := l.csv.Error(); err != nil {
		return err
	}
	return l.export.flush()
}

func (l *lines) close() error { return nil }

// workbook is a file of XLSX. The rows wait in a temporary file: the format needs the last one before it is sent.
type workbook struct {
	export  *export
	file    *excelize.File
	sheet   *excelize.StreamWriter
	sheets  int
	next    int            // the row to be written, from 1
	maxRows int            // of a sheet, the one with the names of the columns included
	styles  map[string]int // by their formats
	err     error          // of a style
}

func newWorkbook(e *export) *workbook {
	b := &workbook{export: e, file: excelize.NewFile(), maxRows: excelize.TotalRows, styles: map[string]int{}}
	// Straight to the client: excelize alone would make the whole file in memory.
	b.file.SetZipWriter(func(io.Writer) excelize.ZipWriter { return zip.NewWriter(e) })
	return b
}

func (b *workbook) row(order model.BookedOrder) error {
	if b.sheet == nil || b.next > b.maxRows {
		if err := b.nextSheet(); err != nil {
			return err
		}
	}
	decimals := Decimals(order.Currency)
	amount := strings.TrimSuffix("0."+strings.Repeat("0", decimals), ".")
	words := func(text string) any { return b.cell("@", text) }
	money := func(minor int64) any { return b.cell(amount, float64(minor)/math.Pow10(decimals)) }
	return b.write(cells(order, words, money, func(at *time.Time) any {
		if at == nil || at.IsZero() {
			return nil
		}
		return b.cell("yyyy-mm-dd hh:mm:ss", at.UTC())
	}))
}

func (b *workbook) nextSheet() (err error) {
	name := "Orders"
	if b.sheet == nil {
		err = b.file.SetSheetName("Sheet1", name)
	} else {
		name += " " + strconv.Itoa(b.sheets+1)
		if err = b.sheet.Flush(); err == nil {
			_, err = b.file.NewSheet(name)
		}
	}
	if err != nil {
		return err
	}
	if b.sheet, err = b.file.NewStreamWriter(name); err != nil {
		return err
	}
	b.sheets, b.next = b.sheets+1, 1
	const width = 24 // characters
	if err := b.sheet.SetColWidth(1, len(columns()), width); err != nil {
		return err
	}
	var names []any
	for _, name := range columns() {
		names = append(names, name)
	}
	return b.write(names)
}

func (b *workbook) write(cells []any) error {
	at, err := excelize.CoordinatesToCellName(1, b.next)
	if err = cmp.Or(b.err, err); err != nil {
		return err
	}
	b.next++
	return b.sheet.SetRow(at, cells)
}

func (b *workbook) cell(format string, value any) any {
	style, made := b.styles[format]
	if !made {
		made, err := b.file.NewStyle(&excelize.Style{CustomNumFmt: &format})
		style, b.styles[format], b.err = made, made, cmp.Or(b.err, err)
	}
	return excelize.Cell{StyleID: style, Value: value}
}

func (b *workbook) finish() error {
	if b.sheet == nil {
		if err := b.nextSheet(); err != nil {
			return err
		}
	}
	if err := b.sheet.Flush(); err != nil {
		return err
	}
	if err := b.file.Write(b.export); err != nil {
		return err
	}
	return b.export.flush()
}

func (b *workbook) close() error { return b.file.Close() }

const usualDecimals = 2 // of most currencies, and of one that is not known

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
