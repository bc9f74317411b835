package queue

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"

	"seckill/internal/workshop/check"
)

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func someOrders(n int) []order1 {
	orders := make([]order1, n)
	for i := range orders {
		orders[i] = order1{
			ID: fmt.Sprintf("0%025d.v-1", i), User: fmt.Sprintf("issuer:user_%d.x", i), Epoch: 7, Created: 1893459600123456,
			Price: 1000, Currency: "CNY",
		}
	}
	return orders
}

// isolated are orders that came in other messages.
func isolated(orders []order1) []order1 {
	for i := range orders {
		orders[i].Sequence = 1_764_259_200_000_000 + uint64(i)
	}
	return orders
}

// TestLayoutIsThatOfTheLibrary: what is written and read without the JSON library is what
// the library writes and reads.
func TestLayoutIsThatOfTheLibrary(t *testing.T) {
	t.Parallel()
	odd := func(change func(o *order1)) []order1 {
		orders := someOrders(3)
		change(&orders[1])
		return orders
	}
	for name, test := range map[string]struct {
		orders        []order1
		write, readit bool // without the library
	}{
		"one":           {someOrders(1), true, true},
		"many":          {someOrders(MaxOrders), true, true},
		"zeros":         {odd(func(o *order1) { *o = order1{} }), true, true},
		"large numbers": {odd(func(o *order1) { o.Price = 999_999_999_999_999_999 }), true, true},
		"the largest":   {odd(func(o *order1) { o.Price = math.MaxInt64 }), true, false},
		"negative":      {odd(func(o *order1) { o.Epoch = -1 }), true, false},
		"an escape":     {odd(func(o *order1) { o.Currency = "<\"\\\n" }), false, false},
		"other letters": {odd(func(o *order1) { o.User = "ü" }), false, false},
		"traced":        {odd(func(o *order1) { o.Trace = trace }), true, true},
		"isolated":      {isolated(odd(func(o *order1) { o.Trace = trace })), true, true},
		"none":          {[]order1{}, true, false},
	} {
		want, err := json.Marshal(message1{Version: version, Orders: test.orders})
		check.Must(t, err)
		got, usual := appendMessage(nil, test.orders)
		check.Equal(t, name+" is written without the library", usual, test.write)
		if usual {
			check.Equal(t, name+" as it is written", string(got), string(want))
		}
		read, usual := readMessage(string(want))
		check.Equal(t, name+" is read without the library", usual, test.readit)
		if usual && !reflect.DeepEqual(read, test.orders) {
			t.Errorf("%s is read as %+v", name, read)
		}
	}
}

// FuzzReadMessage: whatever is read without the library, the library reads as well, and
// it says the same.
//
//	go test -run '^$' -fuzz FuzzReadMessage ./queue
func FuzzReadMessage(f *testing.F) {
	traced := someOrders(2)
	traced[1].Trace = trace
	whole, _ := appendMessage(nil, traced)
	moved, _ := appendMessage(nil, isolated(someOrders(2)))
	for _, text := range []string{
		string(whole), string(whole) + " ", string(whole[:len(whole)-1]), string(moved),
		`{"v":3,"orders":[]}`, `{"v":1,"orders":[]}`, `{"v":1,"orders":[{"id":"{\"id\":"}]}`, ``,
		`{"v":1,"orders":[{"id":"a.b","user":"u","epoch":01,"created":1,"price":1,"currency":"CNY"}]}`,
		`{"v":1,"orders":[{"id":"a.b","user":"u","epoch":1,"created":1,"price":1,"currency":"CNY","id":"x"}]}`,
		`{"v":1,"orders":[{"id":"a.b","user":"u","epoch":1,"created":9999999999999999999,"price":1,"currency":"CNY"}]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, usual := readMessage(text)
		if !usual {
			return
		}
		var want message1
		if err := json.Unmarshal([]byte(text), &want); err != nil || want.Version != version || !reflect.DeepEqual(got, want.Orders) {
			t.Errorf("%s is read as %+v; the library reads %+v, %v", text, got, want, err)
		}
	})
}

// BenchmarkLayout measures what it saves to write and read messages of 100 orders without
// the library.
func BenchmarkLayout(b *testing.B) {
	orders := someOrders(100)
	body, _ := appendMessage(nil, orders)
	for name, run := range map[string]func(){
		"write/usual":   func() { _, _ = appendMessage(make([]byte, 0, len(orders)*usualOrder), orders) },
		"write/library": func() { _, _ = json.Marshal(message1{Version: version, Orders: orders}) },
		"read/usual":    func() { _, _ = readMessage(string(body)) },
		"read/library":  func() { _ = json.Unmarshal(body, &message1{}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
