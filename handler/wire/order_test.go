package wire

import (
	"context"
	"encoding/csv"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xuri/excelize/v2"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// A program reads back what was exported, whatever the texts, and a spreadsheet takes none of them for a formula.
func FuzzCSV(f *testing.F) {
	for _, text := range []string{"", "user:1", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "a,b", `"quoted"`, "a\r\nb", " =1", "'=1", "\ufeff", "茶", "\xff", "\x00"} {
		f.Add(text, text, int64(1000), int64(0))
		f.Add("o1.v1", text, int64(-1), int64(1<<62))
	}
	f.Fuzz(func(t *testing.T, id, user string, price, micros int64) {
		at := time.UnixMicro(micros)
		order := model.Order{
			ID: id, VoucherID: id, UserID: user, Status: model.OrderStatus(user), Reason: user, Price: price,
			Currency: id, CreatedAt: at, PaidAt: &at,
		}
		people := &People{Text: func(key string) string { return key }, Title: func(id string) string { return id }, Zone: time.UTC}
		for _, cell := range people.cells(booked(order)) {
			check.That(t, !formula(cell) || cell[0] == '-' && price < 0, "for people, %q begins a formula", cell)
		}
		file := exported(t, "csv", nil, order, model.Order{}).Body.String()
		records, err := csv.NewReader(strings.NewReader(file)).ReadAll()
		check.Need(t, err == nil && len(records) == 3 && slices.Equal(records[0], columns()), "%v: %q", err, file)
		// Lines end in CRLF, and the reader makes LF of it.
		plain := func(cell string) string { return strings.ReplaceAll(cell, "\r", "") }
		written, texts := (*People)(nil).cells(booked(order)), []string{id, id, user, user, user}
		for i, name := range columns() {
			got := records[1][i]
			check.Equal(t, "what is read in column "+name, plain(got), plain(written[i]))
			check.That(t, name == "price" || name == "received" || !formula(got), "column %s begins a formula: %q", name, got)
			if i < len(texts) {
				check.Equal(t, "the text in column "+name, strings.TrimPrefix(written[i], "'"),
					strings.TrimPrefix(texts[i], "'"))
			}
		}
	})
}

func formula(cell string) bool {
	return cell != "" && strings.ContainsRune("=+-@\t\r\n", rune(cell[0]))
}

// booked is an order with all that an export has.
func booked(order model.Order) model.BookedOrder {
	return model.BookedOrder{Order: order, Reference: order.Reason, Place: order.UserID, Received: order.Price}
}

func exported(t *testing.T, format string, people *People, orders ...model.Order) *httptest.ResponseRecorder {
	t.Helper()
	answer, request := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	begun, err := ExportOrders(answer, request, "orders", format, people, func(row func(model.BookedOrder) error) error {
		for _, order := range orders {
			check.Must(t, row(booked(order)))
		}
		return nil
	})
	check.Must(t, err)
	check.That(t, begun, "the export has not begun")
	check.Equal(t, "the file's name", answer.Header().Get("Content-Disposition"),
		`attachment; filename="orders.`+format+`"`)
	return answer
}

// Excel takes it for UTF-8, its words, amounts and times are for people, and what begins as a formula is text.
func TestACSVForPeople(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, time.November, 11, 20, 0, 1, 0, time.UTC)
	words := map[string]string{"Order": "订单", "redeemed": "已使用"}
	people := &People{
		Text: func(key string) string { return words[key] }, Title: func(string) string { return "=Tea, for two" },
		Zone: time.FixedZone("Asia/Shanghai", 8*3600),
	}
	yuan := model.Order{
		ID: "o1.v1", VoucherID: "v1", UserID: "@SUM(A1)", Status: model.OrderRedeemed, Price: 1005,
		Currency: "CNY", CreatedAt: at, RedeemedAt: &at,
	}
	yen := yuan
	yen.Currency = "JPY"
	answer := exported(t, "csv", people, yuan, yen)
	check.Equal(t, "the file", answer.Body.String(), "\ufeff订单,,,,,,"+strings.Repeat(",\" (Asia/Shanghai)\"", 5)+",,,,\r\n"+
		"o1.v1,\"'=Tea, for two\",'@SUM(A1),已使用,,10.05,CNY,2030-11-12 04:00:01,,,2030-11-12 04:00:01,,,'@SUM(A1),10.05,0.00\r\n"+
		"o1.v1,\"'=Tea, for two\",'@SUM(A1),已使用,,1005,JPY,2030-11-12 04:00:01,,,2030-11-12 04:00:01,,,'@SUM(A1),1005,0\r\n")
}

func spreadsheet(t *testing.T, answer *httptest.ResponseRecorder) *excelize.File {
	t.Helper()
	file := check.Value(excelize.OpenReader(answer.Body))(t)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// In XLSX a spreadsheet reads what is there, where it makes numbers, dates and formulas of a CSV's texts.
func TestSpreadsheetsKeepWhatTheyRead(t *testing.T) {
	t.Parallel()
	ids := []string{
		"653247040368672768", "00042", "1-2", "=1+1", "1e5", "@SUM(A1)", "true", "auth0|a@b.example",
		"茶 <&>",
	}
	at := time.Date(2030, time.November, 11, 20, 0, 1, 0, time.FixedZone("", 8*3600))
	var orders []model.Order
	for _, id := range ids {
		orders = append(orders, model.Order{
			ID: id, VoucherID: id, UserID: id, Reason: id, Status: model.OrderPaid, Price: 100005, Currency: "CNY",
			CreatedAt: at, PaidAt: &at,
		})
	}
	answer := exported(t, "xlsx", nil, append(orders,
		model.Order{ID: "yen", Price: 1_000_000_000_000, Currency: "JPY", CreatedAt: at})...)
	check.Equal(t, "the type", answer.Header().Get("Content-Type"), XLSX)
	file := spreadsheet(t, answer)
	rows := check.Value(file.GetRows("Orders"))(t)
	if len(rows) != len(ids)+2 || !slices.Equal(rows[0], columns()) {
		t.Fatalf("%d rows, the first is %q", len(rows), rows[0])
	}
	for i, id := range ids {
		want := []string{id, id, id, "paid", id, "1000.05", "CNY", "2030-11-11 12:00:01", "", "2030-11-11 12:00:01", "", "", id, id, "1000.05", "0.00"}
		check.That(t, slices.Equal(rows[i+1], want), "%q, want %q", rows[i+1], want)
		for _, column := range []string{"A", "B", "C", "E"} {
			cell := column + strconv.Itoa(i+2)
			kind, formula := check.Value(file.GetCellType("Orders", cell))(t),
				check.Value(file.GetCellFormula("Orders", cell))(t)
			check.That(t, kind == excelize.CellTypeInlineString && formula == "",
				"%s of %q is of type %d, with the formula %q", cell, id, kind, formula)
		}
	}
	check.Equal(t, "an amount without a minor unit", rows[len(rows)-1][5], "1000000000000")
	number := check.Value(file.GetCellValue("Orders", "F2", excelize.Options{RawCellValue: true}))(t)
	check.Equal(t, "an amount is a number", number, "1000.05")
}

func TestMoreRowsThanASheetHas(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	b := newWorkbook(&export{w: answer, r: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)})
	b.maxRows = 3
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		check.Must(t, b.row(booked(model.Order{ID: id})))
	}
	check.Must(t, b.finish())
	check.Must(t, b.close())
	file := spreadsheet(t, answer)
	var got []string
	for _, sheet := range file.GetSheetList() {
		rows := check.Value(file.GetRows(sheet))(t)
		check.Equal(t, "the first row of "+sheet, strings.Join(rows[0], " "), strings.Join(columns(), " "))
		for _, row := range rows[1:] {
			got = append(got, sheet+": "+row[0])
		}
	}
	check.Equal(t, "the rows", strings.Join(got, ", "), "Orders: a, Orders: b, Orders 2: c, Orders 2: d, Orders 3: e")
}

func TestSpreadsheetsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	broken := errors.New("broken off")
	for _, fails := range []error{nil, broken} {
		answer := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
		used := false
		begun, err := ExportOrders(answer, request, "orders-v1", "xlsx", nil, func(row func(model.BookedOrder) error) error {
			reason := strings.Repeat("x", 30_000)
			for range 2 * excelize.StreamChunkSize / len(reason) {
				if err := row(model.BookedOrder{Order: model.Order{Reason: reason}}); err != nil {
					return err
				}
			}
			left := check.Value(os.ReadDir(dir))(t)
			used = len(left) > 0
			return fails
		})
		if !errors.Is(err, fails) || begun != (fails == nil) || (answer.Body.Len() > 0) != begun || !used {
			t.Errorf("%v: begun %v, %d bytes, a temporary file %v", err, begun, answer.Body.Len(), used)
		}
		if left := check.Value(os.ReadDir(dir))(t); len(left) > 0 {
			t.Errorf("%v leaves %v", fails, left)
		}
	}
}
