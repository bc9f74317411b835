package queue

import (
	"strconv"
	"strings"
)

// The layout of a message is JSON of its structs below. A message without flaws, as this
// package writes it, is read and written here without the JSON library, which takes
// several times as long (see BenchmarkLayout). Everything else is for the library: then the
// functions report false.

// appendMessage appends the body of a message of the present version.
func appendMessage(to []byte, orders []order1) (_ []byte, usual bool) {
	usual = true
	to = strconv.AppendInt(append(to, messageBegins...), version, 10)
	to = append(to, `,"orders":[`...)
	for i, o := range orders {
		if i > 0 {
			to = append(to, ',')
		}
		usual = usual && plain(o.ID) && plain(o.User) && plain(o.Currency) && plain(o.Trace)
		to = append(append(to, `{"id":"`...), o.ID...)
		to = append(append(to, `","user":"`...), o.User...)
		to = strconv.AppendInt(append(to, `","epoch":`...), o.Epoch, 10)
		to = strconv.AppendInt(append(to, `,"created":`...), o.Created, 10)
		to = strconv.AppendInt(append(to, `,"price":`...), o.Price, 10)
		to = append(append(to, `,"currency":"`...), o.Currency...)
		if o.Trace != "" {
			to = append(append(to, `","trace":"`...), o.Trace...)
		}
		to = append(to, `"}`...)
	}
	return append(to, `]}`...), usual
}

const messageBegins = `{"v":`

// plain reports whether a text is written in JSON as it is.
func plain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// readMessage reads what appendMessage writes.
func readMessage(body string) (_ []order1, usual bool) {
	r := reading{rest: body, usual: true}
	r.skip(messageBegins + strconv.Itoa(version) + `,"orders":[`)
	orders := make([]order1, 0, strings.Count(body, `{"id":`))
	for r.usual && len(orders) < cap(orders) {
		if len(orders) > 0 {
			r.skip(`,`)
		}
		orders = append(orders, order1{
			ID: r.text(`{"id":`), User: r.text(`,"user":`), Epoch: r.number(`,"epoch":`), Created: r.number(`,"created":`),
			Price: r.number(`,"price":`), Currency: r.text(`,"currency":`),
		})
		if strings.HasPrefix(r.rest, `,`) {
			orders[len(orders)-1].Trace = r.text(`,"trace":`)
		}
		r.skip(`}`)
	}
	r.skip(`]}`)
	return orders, r.usual && r.rest == "" && len(orders) > 0
}

// reading is a message that is being read from its beginning.
type reading struct {
	rest  string
	usual bool
}

func (r *reading) skip(text string) {
	rest, ok := strings.CutPrefix(r.rest, text)
	r.rest = rest
	r.usual = r.usual && ok
}

// text reads the member of a name, a text without escapes.
func (r *reading) text(name string) string {
	r.skip(name)
	r.skip(`"`)
	text, rest, ok := strings.Cut(r.rest, `"`)
	r.usual = r.usual && ok && plain(text)
	r.rest = rest
	return text
}

// maxDigits of a number fit into an int64.
const maxDigits = 18

// number reads the member of a name, a whole number that is not negative.
func (r *reading) number(name string) (n int64) {
	r.skip(name)
	digits := 0
	for digits < len(r.rest) && digits <= maxDigits && r.rest[digits]-'0' <= 9 {
		n = 10*n + int64(r.rest[digits]-'0')
		digits++
	}
	if digits == 0 || digits > maxDigits || digits > 1 && r.rest[0] == '0' {
		r.usual = false
	}
	r.rest = r.rest[digits:]
	return n
}
