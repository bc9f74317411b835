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

const (
	// rowsPerFlush is how many rows are sent at a time, some 100 kB: bounded memory, and no packet for each row.
	rowsPerFlush = 500
)

// errHeadOnly ends the export of a HEAD request at its first row.
var errHeadOnly = errors.New("only the header was asked for")

// ExportOrders streams orders as CSV or, for people with a spreadsheet, as XLSX (format csv or xlsx), in a file of a
// name: each hands out the rows. Given people, the CSV is for them too. It sends nothing before the first row or the
// end is known. An error that comes after it has begun must cut the connection, so that half a file never looks whole.
func ExportOrders(
	w http.ResponseWriter, r *http.Request, name, format string, people *People, each func(row func(model.Order) error) error,
) (begun bool, err error) {
	e := &export{w: w, r: r, stream: http.NewResponseController(w), media: CSV, name: name + "." + format}
	var file table = newLines(e, people)
	if format == "xlsx" {
		e.media, file = XLSX, newWorkbook(e)
	}
	defer func() { err = errors.Join(err, file.close()) }()
	if err := each(func(order model.Order) error { return e.row(file, order) }); err != nil && !errors.Is(err, errHeadOnly) {
		return e.begun, err
	}
	if e.headOnly() {
		e.begin()
		return e.begun, nil
	}
	err = file.finish()
	return e.begun, err
}

// table is a file of orders.
type table interface {
	row(order model.Order) error
	flush() error  // sends what can be sent already
	finish() error // sends the rest
	close() error  // frees what it took, sent or not
}

// export is one answer with a file. It is the writer of the file.
type export struct {
	w           http.ResponseWriter
	r           *http.Request
	stream      *http.ResponseController
	media, name string
	begun       bool
	rows        int
}

func (e *export) row(file table, order model.Order) error {
	if e.headOnly() {
		return errHeadOnly
	}
	if err := file.row(order); err != nil {
		return err
	}
	if e.rows++; e.rows%rowsPerFlush != 0 {
		return nil
	}
	e.extend()
	if err := file.flush(); err != nil {
		return err
	}
	return e.r.Context().Err()
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

// Write implements io.Writer.
func (e *export) Write(data []byte) (int, error) {
	e.begin()
	e.extend()
	return e.w.Write(data)
}

// extend gives what comes next its time. A connection without a deadline, as in some tests, has none to move.
func (e *export) extend() { _ = e.stream.SetWriteDeadline(time.Now().Add(budget.Settled)) }

// flush sends what was written. A stream has no Content-Length, however short it is.
func (e *export) flush() error {
	if err := e.stream.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return e.r.Context().Err()
}

func (e *export) headOnly() bool { return e.r.Method == http.MethodHead }

func columns() []string {
	return []string{
		"id", "voucher_id", "user_id", "status", "reason", "price", "currency",
		"created_at", "expires_at", "paid_at", "closed_at", "redeemed_at",
	}
}

// CSV is the media type of exports as lines (RFC 4180). Those for programs have values as they are; see People.
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

// People are whom an export is for: their words, titles, decimal amounts, and times of their zone for spreadsheets.
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

// text guards a cell against spreadsheets that see a formula (OWASP, "CSV Injection"): user ids may begin with @.
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

// XLSX is the media type of exports for people: ids stay texts, amounts numbers and times (UTC) times.
const XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

// maxRows is how many rows a sheet may have, the one with the names of the columns included.
const maxRows = excelize.TotalRows

// workbook is a file of XLSX. The rows wait in a temporary file: the format needs the last one before it is sent.
type workbook struct {
	export  *export
	file    *excelize.File
	sheet   *excelize.StreamWriter
	sheets  int
	next    int // the row to be written, from 1
	maxRows int
	text    int         // styles
	time    int         // likewise
	amounts map[int]int // likewise, by decimals
}

func newWorkbook(e *export) *workbook {
	b := &workbook{export: e, file: excelize.NewFile(), maxRows: maxRows, amounts: map[int]int{}}
	// Straight to the client: excelize alone would make the whole file in memory.
	b.file.SetZipWriter(func(io.Writer) excelize.ZipWriter { return zip.NewWriter(e) })
	return b
}

func (b *workbook) row(order model.Order) error {
	if b.sheet == nil || b.next > b.maxRows {
		if err := b.nextSheet(); err != nil {
			return err
		}
	}
	price, err := b.amount(order.Price, order.Currency)
	if err != nil {
		return err
	}
	return b.write([]any{
		b.words(order.ID), b.words(order.VoucherID), b.words(order.UserID), b.words(string(order.Status)), b.words(order.Reason),
		price, b.words(order.Currency),
		b.instant(&order.CreatedAt), b.instant(order.ExpiresAt), b.instant(order.PaidAt), b.instant(order.ClosedAt), b.instant(order.RedeemedAt),
	})
}

// nextSheet begins one with the names of the columns.
func (b *workbook) nextSheet() (err error) {
	name := "Orders"
	if b.sheet == nil {
		err = cmp.Or(b.file.SetSheetName("Sheet1", name), b.styles())
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
	names := make([]any, 0, len(columns()))
	for _, name := range columns() {
		names = append(names, name)
	}
	return b.write(names)
}

// styles makes those that do not depend on a currency.
func (b *workbook) styles() (err error) {
	text, instant := "@", "yyyy-mm-dd hh:mm:ss"
	if b.text, err = b.file.NewStyle(&excelize.Style{CustomNumFmt: &text}); err != nil {
		return err
	}
	b.time, err = b.file.NewStyle(&excelize.Style{CustomNumFmt: &instant})
	return err
}

func (b *workbook) write(cells []any) error {
	at, err := excelize.CoordinatesToCellName(1, b.next)
	if err != nil {
		return err
	}
	b.next++
	return b.sheet.SetRow(at, cells)
}

func (b *workbook) words(text string) excelize.Cell {
	return excelize.Cell{StyleID: b.text, Value: text}
}

func (b *workbook) amount(minor int64, currency string) (cell excelize.Cell, err error) {
	decimals := Decimals(currency)
	style, made := b.amounts[decimals]
	if !made {
		format := strings.TrimSuffix("0."+strings.Repeat("0", decimals), ".")
		if style, err = b.file.NewStyle(&excelize.Style{CustomNumFmt: &format}); err != nil {
			return cell, err
		}
		b.amounts[decimals] = style
	}
	return excelize.Cell{StyleID: style, Value: float64(minor) / math.Pow10(decimals)}, nil
}

func (b *workbook) instant(at *time.Time) any {
	if at == nil || at.IsZero() {
		return nil
	}
	return excelize.Cell{StyleID: b.time, Value: at.UTC()}
}

// flush sends nothing: see workbook.
func (b *workbook) flush() error { return nil }

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
