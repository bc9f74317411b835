package wire

import (
	"encoding/csv"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// FuzzCSV: a program reads back what was exported, however the texts came to be in the
// database, and a spreadsheet takes none of them for a formula.
func FuzzCSV(f *testing.F) {
	for _, text := range []string{"", "user:1", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "a,b", `"quoted"`, "a\r\nb", " =1", "'=1", "\ufeff", "茶", "\xff", "\x00"} {
		f.Add(text, text, int64(1000), int64(0))
		f.Add("o1.v1", text, int64(-1), int64(1<<62))
	}
	f.Fuzz(func(t *testing.T, id, user string, price, micros int64) {
		at := time.UnixMicro(micros)
		order := model.Order{ID: id, VoucherID: id, UserID: user, Status: model.OrderStatus(user), Reason: user, Price: price, Currency: id, CreatedAt: at, PaidAt: &at}
		var file strings.Builder
		writer := csv.NewWriter(&file)
		writer.UseCRLF = true
		people := &People{Text: func(key string) string { return key }, Title: func(id string) string { return id }, Zone: time.UTC}
		for _, cell := range people.cells(order) {
			if cell != "" && strings.ContainsRune("=+@\t\r\n", rune(cell[0])) || strings.HasPrefix(cell, "-") && price >= 0 {
				t.Errorf("for people, %q begins a formula", cell)
			}
		}
		for _, record := range [][]string{columns(), cells(order), cells(model.Order{})} {
			check.Must(t, writer.Write(record))
		}
		writer.Flush()
		records, err := csv.NewReader(strings.NewReader(file.String())).ReadAll()
		if err != nil || len(records) != 3 || !slices.Equal(records[0], columns()) {
			t.Fatalf("%v: %q", err, file.String())
		}
		plain := func(cell string) string { return strings.ReplaceAll(cell, "\r", "") } // lines end in CRLF, and are read as LF
		for i, cell := range cells(order) {
			if got := records[1][i]; plain(got) != plain(cell) {
				t.Errorf("column %s: %q was written, %q read", columns()[i], cell, got)
			}
		}
		for i, name := range columns() {
			if name != "price" && records[1][i] != "" && strings.ContainsRune("=+-@\t\r\n", rune(records[1][i][0])) {
				t.Errorf("column %s begins a formula: %q", name, records[1][i])
			}
		}
		for i, want := range []string{id, id, user, user, user} {
			if got := strings.TrimPrefix(cells(order)[i], "'"); got != strings.TrimPrefix(want, "'") {
				t.Errorf("column %s: %q of %q", columns()[i], got, want)
			}
		}
	})
}

// TestACSVForPeople: Excel takes it for UTF-8, and its words, amounts and times are theirs; what begins as a formula is
// text.
func TestACSVForPeople(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, time.November, 11, 20, 0, 1, 0, time.UTC)
	people := &People{
		Text: func(key string) string { return map[string]string{"Order": "订单", "redeemed": "已使用"}[key] }, Title: func(string) string { return "=Tea, for two" },
		Zone: time.FixedZone("Asia/Shanghai", 8*3600),
	}
	answer := httptest.NewRecorder()
	begun, err := ExportOrders(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), "orders", "csv", people, func(row func(model.Order) error) error {
		order := model.Order{ID: "o1.v1", VoucherID: "v1", UserID: "@SUM(A1)", Status: model.OrderRedeemed, Price: 1005, Currency: "CNY", CreatedAt: at, RedeemedAt: &at}
		check.Must(t, row(order))
		order.Price, order.Currency = 1005, "JPY"
		return row(order)
	})
	check.Must(t, err)
	check.That(t, begun && answer.Header().Get("Content-Disposition") == `attachment; filename="orders.csv"`, "%v", answer.Header())
	check.Equal(t, "the file", answer.Body.String(), "\ufeff订单,,,,,,,\" (Asia/Shanghai)\",\" (Asia/Shanghai)\",\" (Asia/Shanghai)\",\" (Asia/Shanghai)\",\" (Asia/Shanghai)\"\r\n"+
		"o1.v1,\"'=Tea, for two\",'@SUM(A1),已使用,,10.05,CNY,2030-11-12 04:00:01,,,2030-11-12 04:00:01,\r\n"+
		"o1.v1,\"'=Tea, for two\",'@SUM(A1),已使用,,1005,JPY,2030-11-12 04:00:01,,,2030-11-12 04:00:01,\r\n")
}
