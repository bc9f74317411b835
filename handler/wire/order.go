package wire

import (
	"encoding/csv"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"seckill/model"
)

// CSV is the media type of exports (RFC 4180).
const CSV = "text/csv; charset=utf-8"

const (
	// rowsPerFlush is how many rows are sent at a time: some 100 kB. An export of
	// any length needs no more memory, and no packet for each row.
	rowsPerFlush = 500
	// flushTimeout ends an export whose client has stopped reading, because it
	// holds a database connection. It starts anew with every flush.
	flushTimeout = 30 * time.Second
)

// errHeadOnly ends the export of a HEAD request at its first row.
var errHeadOnly = errors.New("only the header was asked for")

// ExportOrders streams a voucher's orders as CSV: each hands out the rows. It sends nothing
// before the first row or the end is known. An error that comes after it has begun must cut
// the connection, so that half a file never looks whole.
func ExportOrders(w http.ResponseWriter, r *http.Request, voucherID string, each func(row func(model.Order) error) error) (begun bool, err error) {
	e := &export{
		w: w, r: r, stream: http.NewResponseController(w), csv: csv.NewWriter(w), name: "orders-" + voucherID + ".csv",
	}
	e.csv.UseCRLF = true // RFC 4180, 2.1
	if err := each(e.row); err != nil && !errors.Is(err, errHeadOnly) {
		return e.begun, err
	}
	err = e.finish()
	return e.begun, err
}

// export is one answer in CSV.
type export struct {
	w      http.ResponseWriter
	r      *http.Request
	stream *http.ResponseController
	csv    *csv.Writer
	name   string
	begun  bool
	rows   int
}

// begin writes the header, once. An answer to HEAD has the headers of one to GET, and
// nothing else: what is written would be counted as its length (RFC 9110, 9.3.2).
func (e *export) begin() error {
	if e.begun {
		return nil
	}
	e.begun = true
	header := e.w.Header()
	header.Set("Content-Type", CSV)
	header.Set("Content-Disposition", `attachment; filename="`+e.name+`"`)
	e.w.WriteHeader(http.StatusOK)
	if e.headOnly() {
		return nil
	}
	return e.csv.Write(columns())
}

func (e *export) row(order model.Order) error {
	if e.headOnly() {
		return errHeadOnly
	}
	if err := e.begin(); err != nil {
		return err
	}
	if err := e.csv.Write(cells(order)); err != nil {
		return err
	}
	if e.rows++; e.rows%rowsPerFlush != 0 {
		return nil
	}
	return e.flush()
}

// flush sends what was written. A connection without a deadline, as in tests without a
// server, has none to move.
func (e *export) flush() error {
	_ = e.stream.SetWriteDeadline(time.Now().Add(flushTimeout))
	e.csv.Flush()
	if err := e.csv.Error(); err != nil {
		return err
	}
	if err := e.stream.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return e.r.Context().Err()
}

// finish sends the rest. It is flushed, as every part before: a stream has no
// Content-Length, however short it is.
func (e *export) finish() error {
	if err := e.begin(); err != nil {
		return err
	}
	return e.flush()
}

func (e *export) headOnly() bool { return e.r.Method == http.MethodHead }

func columns() []string {
	return []string{
		"id", "voucher_id", "user_id", "status", "reason", "price", "currency",
		"created_at", "expires_at", "paid_at", "closed_at",
	}
}

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
