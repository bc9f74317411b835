package handler

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"seckill/model"
)

// A sale's answers are nearly all one of two documents: an order, or a problem without lists. They are written out here
// as encoding/json would write them, because that finds out by reflection each time what they are made of (see
// BenchmarkDocument). What is not usual in one of them is left to the library: then the functions report false.

// appendDocument appends a document and the line break that json.Encoder ends it with.
func appendDocument(to []byte, document any) (_ []byte, usual bool) {
	switch document := document.(type) {
	case model.Order:
		to, usual = appendOrder(to, document)
	case *Problem:
		to, usual = appendProblem(to, document)
	}
	return append(to, '\n'), usual
}

func appendOrder(to []byte, o model.Order) (_ []byte, usual bool) {
	d := document{text: to, usual: true}
	d.member(`{"id":`, o.ID)
	d.member(`,"voucher_id":`, o.VoucherID)
	d.member(`,"user_id":`, o.UserID)
	d.member(`,"status":`, string(o.Status))
	d.some(`,"reason":`, o.Reason)
	d.text = strconv.AppendInt(append(d.text, `,"price":`...), o.Price, 10)
	d.member(`,"currency":`, o.Currency)
	d.instant(`,"created_at":`, &o.CreatedAt)
	d.instant(`,"expires_at":`, o.ExpiresAt)
	d.text = append(d.text, '}')

	// Whatever else an order says, the library writes.
	o.ID, o.VoucherID, o.UserID, o.Status, o.Reason, o.Price, o.Currency = "", "", "", "", "", 0, ""
	o.CreatedAt, o.ExpiresAt, o.UnpaidAt = time.Time{}, nil, nil
	return d.text, d.usual && o == model.Order{}
}

func appendProblem(to []byte, p *Problem) (_ []byte, usual bool) {
	d := document{text: to, usual: len(p.Errors)+len(p.Checks) == 0 && p.Build == nil && p.RedeemedAt == nil}
	d.member(`{"type":`, p.Type)
	d.member(`,"title":`, p.Title)
	d.text = strconv.AppendInt(append(d.text, `,"status":`...), int64(p.Status), 10)
	d.member(`,"detail":`, p.Detail)
	d.member(`,"code":`, string(p.Code))
	d.some(`,"order_id":`, p.OrderID)
	d.some(`,"order_status":`, string(p.OrderStatus))
	d.instant(`,"begin_at":`, p.BeginAt)
	d.instant(`,"retry_at":`, p.RetryAt)
	d.text = append(d.text, '}')
	return d.text, d.usual
}

// document is one on its way.
type document struct {
	text  []byte
	usual bool
}

// member appends a member whose value is a text.
func (d *document) member(name, value string) {
	ascii := true
	for i := range len(value) {
		switch c := value[i]; {
		case c >= utf8.RuneSelf:
			ascii = false
		case c < ' ', c > '~', c == '"', c == '\\':
			d.usual = false // it may need an escape
		}
	}
	if !ascii && (!utf8.ValidString(value) || strings.ContainsAny(value, "\u2028\u2029")) {
		d.usual = false // likewise
	}
	d.text = append(append(append(append(d.text, name...), '"'), value...), '"')
}

// some is member, but for an empty text.
func (d *document) some(name, value string) {
	if value != "" {
		d.member(name, value)
	}
}

// instant appends a member whose value is a time, if there is one.
func (d *document) instant(name string, at *time.Time) {
	if at == nil {
		return
	}
	if year := at.Year(); year < 0 || year > 9999 || at.Location() != time.UTC { // see time.Time.MarshalJSON
		d.usual = false
	}
	d.text = append(append(d.text, name...), '"')
	d.text = append(at.AppendFormat(d.text, time.RFC3339Nano), '"')
}
