package wire

import (
	"archive/zip"
	"cmp"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/xuri/excelize/v2"

	"seckill/model"
)

// XLSX is the media type of exports for people: a spreadsheet takes ids for texts, amounts
// for numbers and times (UTC) for times, whatever it would make of a text like them.
const XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

// maxRows is how many rows a sheet may have, the one with the names of the columns included.
const maxRows = excelize.TotalRows

// workbook is a file of XLSX. The rows wait in a temporary file: the format cannot be sent
// before the last one is known.
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
