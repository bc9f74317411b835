package handler

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"seckill/model"
)

// csvType is the media type of exports (RFC 4180).
const csvType = "text/csv; charset=utf-8"

const (
	// rowsPerFlush is how many rows are sent at a time: some 100 kB, so that
	// an export of any length needs no more memory, nor a packet for each row.
	rowsPerFlush = 500
	// flushTimeout ends an export whose client stopped reading, because each holds a
	// database connection. It starts anew with every flush.
	flushTimeout = 30 * time.Second
)

// errHeadOnly ends a HEAD request's export at its first row: it was only to
// learn whether there is one to send.
var errHeadOnly = errors.New("only the header was asked for")

func columns() []string {
	return []string{
		"id", "voucher_id", "user_id", "status", "reason", "price", "currency",
		"created_at", "expires_at", "paid_at", "closed_at",
	}
}

// exportOrders streams orders as CSV. Nothing is sent before the first row or
// the end is known, so that a failure until then is a proper problem document;
// one after that cuts the connection, so that half a file never looks whole.
func (a *api) exportOrders(c *gin.Context, query model.OrderQuery) {
	out := &export{c: c, csv: csv.NewWriter(c.Writer), name: "orders-" + query.VoucherID + ".csv"}
	out.csv.UseCRLF = true // RFC 4180, 2.1
	err := a.options.Orders.Each(c.Request.Context(), query, out.row)
	switch {
	case err == nil, errors.Is(err, errHeadOnly):
		err = out.finish()
	case !out.begun:
		a.abort(c, err)
		return
	}
	if err != nil {
		_ = a.fail(c.Request.Context(), fmt.Errorf("export orders of voucher %s: %w", query.VoucherID, err))
		panic(http.ErrAbortHandler)
	}
}

// export is one answer in CSV.
type export struct {
	c     *gin.Context
	csv   *csv.Writer
	name  string
	begun bool
	rows  int
}

func (e *export) begin() error {
	e.begun = true
	header := e.c.Writer.Header()
	header.Set("Content-Type", csvType)
	header.Set("Content-Disposition", `attachment; filename="`+e.name+`"`)
	e.c.Status(http.StatusOK)
	return e.csv.Write(columns())
}

func (e *export) row(order model.Order) error {
	if e.c.Request.Method == http.MethodHead {
		return errHeadOnly
	}
	if !e.begun {
		if err := e.begin(); err != nil {
			return err
		}
	}
	if err := e.csv.Write(cells(order)); err != nil {
		return err
	}
	if e.rows++; e.rows%rowsPerFlush != 0 {
		return nil
	}
	return e.flush()
}

func (e *export) flush() error {
	extendWrite(e.c, flushTimeout)
	e.csv.Flush()
	if err := e.csv.Error(); err != nil {
		return err
	}
	e.c.Writer.Flush()
	return e.c.Request.Context().Err()
}

func (e *export) finish() error {
	if !e.begun {
		if err := e.begin(); err != nil {
			return err
		}
	}
	extendWrite(e.c, flushTimeout)
	e.csv.Flush()
	return e.csv.Error()
}

func cells(order model.Order) []string {
	return []string{
		text(order.ID), text(order.VoucherID), text(order.UserID), text(string(order.Status)), text(order.Reason),
		strconv.FormatInt(order.Price, 10), text(order.Currency),
		order.CreatedAt.UTC().Format(time.RFC3339Nano), instant(order.ExpiresAt), instant(order.PaidAt), instant(order.ClosedAt),
	}
}

// text guards a cell against spreadsheets that take it for a formula (OWASP,
// "CSV Injection"): user ids come from other issuers and may begin with a minus.
func text(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
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
