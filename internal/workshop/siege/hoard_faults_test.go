//go:build faults

//part:siege

package siege_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// hoard is a sale of few units to as many hoarders, who never pay and ask sixteen times a second, and as many honest buyers, who
// ask once a second and pay at once. They come when the hoarders have all units.
const (
	hoardUnits  = 50
	hoarderEach = time.Second / 16
	honestEach  = time.Second
	// honestShare is what the honest ones are to have after two payment windows, if the cool-down lasts as long as one.
	honestShare = 0.9
)

// As many accounts as there are units hold them, never pay, and ask again as soon as a unit comes back. With a cool-down they do
// not get it. How many units the honest buyers get without one is printed beside it.
//
//nolint:paralleltest // as TestSiege
func TestHoarders(t *testing.T) {
	window := time.Duration(number(t, "SIEGE_WINDOW", 5)) * time.Second
	for mode := range strings.FieldsSeq(text("SIEGE_MODES", "sync async")) {
		t.Run(mode, func(t *testing.T) {
			town := build(t, mode)
			with, heard := town.hoard(window, window.String())
			without, _ := town.hoard(window, "0s")
			t.Logf("%s: of %d units %d hoarders left %d to %d honest buyers within two payment windows of %v, and %d where the cool-down lasts as long as one (hoarders heard %s)",
				mode, hoardUnits, hoardUnits, without, hoardUnits, window, with, heard)
			check.That(t, with >= honestShare*hoardUnits, "with a cool-down honest buyers got %d of %d units", with, hoardUnits)
		})
	}
}

// hoard lets two payment windows pass, and tells how many units the honest buyers have bought in them, and what the hoarders heard.
func (w *town) hoard(window time.Duration, cooldown string) (honest int, heard string) {
	w.t.Helper()
	db := check.Value(sql.Open("mysql", w.dsn))(w.t)
	defer db.Close()
	v := w.Create(w.t, map[string]any{"stock": hoardUnits, "payment_window": window.String(), "cooldown": cooldown})
	check.Eventually(w.t, "the voucher is loaded", func() bool { return w.Audit(w.t, v.ID).Balanced })
	ctx, end := context.WithTimeout(w.t.Context(), 2*window+window/2) // real time: what is measured; orders are counted by their own
	defer end()
	hoarders := w.ask(ctx, v.ID, "hoarder", hoarderEach, func(string) bool { return true })
	check.Eventually(w.t, "the hoarders have all units", func() bool { return w.Audit(w.t, v.ID).Database.LiveOrders == hoardUnits })
	others := w.ask(ctx, v.ID, "honest", honestEach, func(user string) bool { w.pay(ctx, db, v.ID, user); return false })
	heard = hoarders()
	others()
	err := db.QueryRowContext(w.t.Context(), `SELECT COUNT(*) FROM orders WHERE voucher_id = ? AND status = 'paid' AND created_at <=
		(SELECT MIN(created_at) + INTERVAL ? MICROSECOND FROM orders WHERE voucher_id = ?)`, v.ID, 2*window.Microseconds(), v.ID).Scan(&honest)
	check.Must(w.t, err)
	w.vouchers = append(w.vouchers, v.ID)
	w.conserved()
	return honest, heard
}

// ask lets users try to buy, each again and again until ctx ends, or until the user has bought and does not go on. The function that it
// returns waits for them, and tells what they were refused with.
func (w *town) ask(ctx context.Context, voucherID, who string, each time.Duration, bought func(user string) (goesOn bool)) (heard func() string) {
	client := clientFrom("127.0.67."+strconv.Itoa(len(who)), hoardUnits)
	var all sync.WaitGroup
	var mu sync.Mutex
	refusals := map[model.Code]int{}
	for n := range hoardUnits {
		user := fmt.Sprint(who, n)
		bearer := check.Value(w.Tokens.Issue(token.Claims{Subject: user, Role: model.RoleUser}, time.Hour))(w.t)
		all.Go(func() {
			for at := time.Now().Add(each * time.Duration(n) / hoardUnits); ; at = at.Add(each) {
				select {
				case <-time.After(time.Until(at)): // real time: of users
				case <-ctx.Done():
					return
				}
				got, err := api.Send(ctx, client, http.MethodPost, w.URL+"/api/v1/vouchers/"+voucherID+"/seckill", bearer, nil)
				if err == nil && got.Sells() && !bought(user) {
					return
				}
				if err == nil && got.Status == http.StatusConflict {
					mu.Lock()
					refusals[got.Code()]++
					mu.Unlock()
				}
			}
		})
	}
	return func() string {
		all.Wait()
		client.CloseIdleConnections()
		return fmt.Sprint(refusals)
	}
}

// pay pays the order of a user as soon as it has a row.
func (w *town) pay(ctx context.Context, db *sql.DB, voucherID, user string) {
	for paid := int64(0); paid == 0 && ctx.Err() == nil; {
		result, err := db.ExecContext(ctx, "UPDATE orders SET status = 'paid', paid_at = UTC_TIMESTAMP(6) WHERE voucher_id = ? AND user_id = ? AND status = 'unpaid'", voucherID, user)
		if err == nil {
			paid, _ = result.RowsAffected()
		}
		if paid == 0 {
			<-time.After(10 * time.Millisecond) // real time: the row may be on its way
		}
	}
}
