package repository

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"seckill/model"
)

// reserveWords is how many words of reserve.lua's reply stand before those of
// the orders.
const reserveWords = 6

// reserved is the order of an admission.
func reserved(a model.ReserveRequest) model.Reservation {
	return model.Reservation{Order: model.Order{ID: a.OrderID, VoucherID: a.VoucherID, UserID: a.UserID}}
}

// answer reads what the script says of its i-th order.
func (r *reservation) answer(a *model.ReserveResult, i int) {
	if r.verdict != copyDone {
		a.Err = model.ErrCopyClosed
		return
	}
	if len(r.words) != reserveWords+len(r.asked) || r.words[reserveWords+i] == "" {
		a.Err = fmt.Errorf("reserve order %s: %w: %q", a.ID, errCopyReply, r.words)
		return
	}
	word := r.words[reserveWords+i]
	a.Epoch = r.head
	switch rest := word[1:]; word[0] {
	case 'r', 's':
		a.Price, a.Currency = number(r.words[1]), r.words[2]
		if word[0] == 'r' {
			a.Status, a.CreatedAt = model.OrderProcessing, microTime(r.words[0])
		}
	case 'p':
		a.Reservation = pendingEntry(a.ID, a.VoucherID, rest)
		// The copy that holds it now is the one in which it is published.
		a.Epoch = r.head
	case 'x':
		a.Err = model.ErrOrderClosed
	case 'w':
		a.Err = r.outside()
	case 'l':
		a.Err = model.ErrUserLocked
	case 'a':
		a.Err = other(rest)
	case 'o':
		a.Err = model.SoldOut()
	default:
		a.Err = fmt.Errorf("reserve order %s: %w: %q", a.ID, errCopyReply, word)
	}
}

// outside is the refusal of somebody who comes outside the sale's window.
func (r *reservation) outside() error {
	v := model.Voucher{State: model.VoucherState(r.words[3]), BeginAt: microTime(r.words[4]), EndAt: microTime(r.words[5])}
	if refusal := v.Refusal(microTime(r.words[0])); refusal != nil {
		return refusal
	}
	return fmt.Errorf("%w: refused inside the window: %q", errCopyReply, r.words[:reserveWords])
}

// other refuses somebody who has an order: 1 if it is pending or else 0, and
// its id.
func other(word string) error {
	order := model.Order{ID: word[1:]}
	if word[0] == '1' {
		order.Status = model.OrderProcessing
	}
	return model.AlreadyOrdered(order)
}

// writeEntry is the pending entry of a reservation, see head.lua.
func writeEntry(r model.Reservation) string {
	return strings.Join([]string{
		r.UserID, strconv.FormatInt(r.CreatedAt.UnixMicro(), 10), strconv.FormatInt(r.Price, 10), r.Currency,
		strconv.FormatInt(r.Epoch, 10),
	}, " ")
}

// pendingEntry reads a pending entry.
func pendingEntry(orderID, voucherID, entry string) model.Reservation {
	words := append(strings.Split(entry, " "), make([]string, 5)...)
	return model.Reservation{
		Order: model.Order{
			ID: orderID, VoucherID: voucherID, UserID: words[0], Status: model.OrderProcessing,
			CreatedAt: microTime(words[1]), Price: number(words[2]), Currency: words[3],
		},
		Epoch: number(words[4]),
	}
}

// microTime reads microseconds since 1970.
func microTime(text string) time.Time { return time.UnixMicro(number(text)).UTC() }
