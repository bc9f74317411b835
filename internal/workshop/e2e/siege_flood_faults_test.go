//go:build faults

//part:siege
package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// hoard is a sale of few units to hoarders, who never pay and ask often, and as many honest buyers, who come later.
const (
	hoardUnits  = 50
	hoarderEach = time.Second / 16
	honestEach  = time.Second
	// honestShare is what the honest ones are to have after two payment windows, if the cool-down lasts as long as one.
	honestShare = 0.9
)

// As many accounts as units hold them, never pay, and ask for each that returns: a cool-down stops them.
//
//nolint:paralleltest // as TestSiege
func TestHoarders(t *testing.T) {
	window := time.Duration(check.Count(t, "SIEGE_WINDOW", 5, 5)) * time.Second
	for _, mode := range siegeWords("SIEGE_MODES", "sync async") {
		t.Run(mode, func(t *testing.T) {
			w := newTown(t, mode, nil)
			with, without := w.hoard(window, window.String()), w.hoard(window, "0s")
			t.Logf("of %d units %d hoarders left %d to %d honest buyers within two payment windows of %v, and %d where the cool-down lasts as long as one",
				hoardUnits, hoardUnits, without, hoardUnits, window, with)
			check.That(t, with >= honestShare*hoardUnits, "with a cool-down honest buyers got %d of %d units", with,
				hoardUnits)
		})
	}
}

// hoard lets two payment windows pass, and tells how many units the honest buyers have bought in them.
func (w *town) hoard(window time.Duration, cooldown string) (honest int) {
	w.t.Helper()
	v := w.Create(w.t, map[string]any{"stock": hoardUnits, "payment_window": window.String(), "cooldown": cooldown})
	check.Eventually(w.t, "the voucher is loaded", func() bool { return w.Audit(w.t, v.ID).Balanced })
	ctx, end := context.WithTimeout(w.t.Context(), 2*window+window/2) // real time: what is measured
	defer end()
	hoarders := w.askOften(ctx, v.ID, "hoarder", hoarderEach, func(string) bool { return true })
	check.Eventually(w.t, "the hoarders have all units",
		func() bool { return w.Audit(w.t, v.ID).Database.LiveOrders == hoardUnits })
	others := w.askOften(ctx, v.ID, "honest", honestEach,
		func(user string) bool { w.settle(ctx, v.ID, user); return false })
	hoarders()
	others()
	check.Must(w.t, w.db.QueryRowContext(w.t.Context(), `SELECT COUNT(*) FROM orders WHERE voucher_id = ? AND status = 'paid' AND created_at <=
		(SELECT MIN(created_at) + INTERVAL ? MICROSECOND FROM orders WHERE voucher_id = ?)`, v.ID, 2*window.Microseconds(), v.ID).Scan(&honest))
	w.vouchers = append(w.vouchers, v.ID)
	w.conservedAll()
	return honest
}

// askOften lets users try to buy until ctx ends, or one has bought and stops. The function waits for them.
func (w *town) askOften(
	ctx context.Context, voucherID, who string, each time.Duration, bought func(user string) (goesOn bool),
) (wait func()) {
	client := clientsFrom(w.t, fmt.Sprintf("127.0.67.%d%%d", len(who)), 1, hoardUnits)[0]
	var all sync.WaitGroup
	for n := range hoardUnits {
		user := fmt.Sprint(who, n)
		bearer := w.Token(w.t, user, model.RoleUser)
		all.Go(func() {
			for at := time.Now().Add(each * time.Duration(n) / hoardUnits); ; at = at.Add(each) {
				select {
				case <-time.After(time.Until(at)): // real time: of users
				case <-ctx.Done():
					return
				}
				got, err := api.Send(ctx, client, http.MethodPost, w.URL+"/api/v1/vouchers/"+voucherID+"/seckill",
					bearer, nil)
				if err == nil && got.Sells() && !bought(user) {
					return
				}
			}
		})
	}
	return all.Wait
}

func (w *town) settle(ctx context.Context, voucherID, user string) {
	const pays = "UPDATE orders SET status = 'paid', paid_at = UTC_TIMESTAMP(6) WHERE voucher_id = ? AND user_id = ? AND status = 'unpaid'"
	for paid := int64(0); paid == 0 && ctx.Err() == nil; {
		if result, err := w.db.ExecContext(ctx, pays, voucherID, user); err == nil {
			paid, _ = result.RowsAffected()
		}
		if paid == 0 {
			<-time.After(10 * time.Millisecond) // real time: the row may be on its way
		}
	}
}

// withDescriptors makes a program that may have so many files open, connections among them.
func withDescriptors(t *testing.T, program string, descriptors int) string {
	path := filepath.Join(t.TempDir(), "seckill")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", descriptors, program)
	check.Must(t, os.WriteFile(path, []byte(script), 0o700))
	return path
}

// TestDrippingHeadersAreCut: a request whose header arrives byte by byte has some seconds for it.
func TestDrippingHeadersAreCut(t *testing.T) {
	t.Parallel()
	a := start(t, embeddedSettings(t))
	c := check.Value((&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(a.URL, "http://")))(t)
	defer c.Close()
	check.Value(c.Write([]byte("GET /livez HTTP/1.1\r\nHost: x\r\nX-A: ")))(t)
	check.Eventually(t, "the connection is cut", func() bool {
		_, err := c.Write([]byte("a"))
		return err != nil
	})
}
