package console_test

import (
	"net/http"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// A refund that the provider has refused for good is found in the list, says why on its
// order's page, and is tried again there until the money is back.
func TestAFailedRefundIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	order := s.paid(t, "alice", b.create(t))
	done := func() bool {
		return strings.Contains(b.page(t, "/console/refunds?status=done"), `href="/console/orders/`+order+`"`)
	}
	want(t, b.page(t, "/console/refunds"), "There are none.", `aria-current="true">failed</a>`)
	b.act(t, "/console/orders/"+order+"/refund", nil)
	check.Patiently(t, "the money is back", done)
	want(t, b.page(t, "/console/orders/"+order), "<h2>Refunds</h2>", `<span class="badge done">done</span>`, "an administrator asked for it", `<td class="number" data-label="Attempts">1</td>`)

	db := s.database(t)
	check.Must(t, check.ErrorOf(db.SQL().ExecContext(t.Context(),
		"UPDATE refunds SET status = 'failed', attempts = 3, error = 'the card is <closed>' WHERE order_id = ?", order)))
	check.Must(t, check.ErrorOf(db.SQL().ExecContext(t.Context(), "UPDATE orders SET reason = 'REFUND_FAILED' WHERE id = ?", order)))
	const kept = "The money is not back: the payment provider has refused to return it for good."
	want(t, b.page(t, "/console/orders/"+order), kept)
	want(t, b.page(t, "/console/orders?user=alice"), `<span class="badge">the money is not back: the payment provider has refused to return it</span>`)
	want(t, b.page(t, "/console/refunds"), `href="/console/orders/`+order+`"`, "the card is &lt;closed&gt;", `<td class="number" data-label="Attempts">3</td>`)
	want(t, b.page(t, "/console/refunds?status="), order)
	want(t, b.page(t, "/console"), "Refunds that the payment provider has refused: 1")
	if strings.Contains(b.page(t, "/console/refunds?status=pending"), order) {
		t.Error("a failed refund is pending")
	}
	// A payment that was one too many: who tries its refund again must not refund the order.
	for status, offered := range map[string]bool{"paid": false, "refunded": true} {
		check.Must(t, check.ErrorOf(db.SQL().ExecContext(t.Context(), "UPDATE orders SET status = ? WHERE id = ?", status, order)))
		if strings.Contains(b.page(t, "/console/orders/"+order), "Try the refund again") != offered {
			t.Errorf("of an order that is %s, the refund can be tried again: %t", status, !offered)
		}
	}
	check.Must(t, check.ErrorOf(db.SQL().ExecContext(t.Context(), "UPDATE orders SET status = 'refunded' WHERE id = ?", order)))
	page := b.page(t, "/console/orders/"+order)
	want(t, page, "the card is &lt;closed&gt;", "Try the refund again")
	want(t, b.act(t, "/console/orders/"+order+"/refund", nil), "The refund is under way")
	check.Patiently(t, "the money is back after another try", done)
	if page := b.page(t, "/console/orders/"+order); strings.Contains(page, "Try the refund again") || strings.Contains(page, kept) {
		t.Error("a refund that is made can be tried again, or the page says that it is not made")
	}
	b.get(t, "/console/refunds?status=lost").is(t, http.StatusUnprocessableEntity)
}
