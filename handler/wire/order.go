package wire

import (
	"errors"
	"net/http"
	"time"

	"seckill/internal/budget"
	"seckill/model"
)

const (
	// rowsPerFlush is how many rows are sent at a time: some 100 kB. An export of
	// any length needs no more memory, and no packet for each row.
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

// begin sends the header, once. An answer to HEAD has the headers of one to GET, and
// nothing else: what is written would be counted as its length (RFC 9110, 9.3.2).
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

// extend gives what comes next its time. A connection without a deadline, as in tests without
// a server, has none to move.
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
