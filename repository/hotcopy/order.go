package hotcopy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/model"
)

// Pending finds an order's pending entry. ErrCopyClosed: the copy is closed, and knows nothing of the order.
func (s *Store) Pending(ctx context.Context, orderID string) (model.Reservation, bool, error) {
	voucherID, ok := model.VoucherOf(orderID)
	if !ok {
		return model.Reservation{}, false, nil
	}
	_, pending, err := s.do(ctx, "find", voucherID, orderID, "").order(orderID)
	if err != nil || pending == nil {
		return model.Reservation{}, false, err
	}
	return *pending, true, nil
}

// OrderOf finds the order that marks a buyer, and its entry while pending. "": none; ErrCopyClosed as Pending.
func (s *Store) OrderOf(
	ctx context.Context, voucherID, userID string,
) (orderID string, pending *model.Reservation, err error) {
	if userID == "" {
		return "", nil, nil
	}
	return s.do(ctx, "find", voucherID, "", userID).order("")
}

// OrdersOf is OrderOf of several buyers in one pipeline. What a closed or silent copy cannot tell is empty.
func (s *Store) OrdersOf(ctx context.Context, buyers []model.Buyer) ([]model.BuyersOrder, error) {
	calls := make([]*call, len(buyers))
	for i, b := range buyers {
		calls[i] = &call{script: "find", voucher: b.VoucherID, args: []any{"", b.UserID}}
	}
	s.run(ctx, calls...)
	found := make([]model.BuyersOrder, len(buyers))
	for i, c := range calls {
		if buyers[i].UserID == "" {
			continue
		}
		if id, pending, err := c.order(""); err == nil {
			found[i] = model.BuyersOrder{OrderID: id, Pending: pending}
		}
	}
	return found, nil
}

func (c *call) order(asked string) (found string, pending *model.Reservation, err error) {
	if err := c.fail("find an order"); err != nil {
		return "", nil, err
	}
	if len(c.words) < 2 {
		return "", nil, c.closed("find an order")
	}
	if c.words[1] != "" {
		r := pendingEntry(c.words[0], c.voucher, c.words[1])
		return c.words[0], &r, nil
	}
	if asked != "" || c.words[0] == "" {
		return "", nil, c.closed("find an order")
	}
	return c.words[0], nil, nil
}

// Due lists pending entries published or admitted so long ago by Redis' clock, oldest first. For noted others see Mend.
func (s *Store) Due(
	ctx context.Context, voucherID string, olderThan time.Duration, limit int,
) ([]model.Reservation, error) {
	c := s.do(ctx, "due", voucherID, olderThan.Milliseconds(), min(limit, maxDue))
	if err := c.closed("list due orders"); err != nil {
		return nil, err
	}
	due := []model.Reservation{}
	for i := 0; i+1 < len(c.words); i += 2 {
		due = append(due, pendingEntry(c.words[i], voucherID, c.words[i+1]))
	}
	return due, nil
}

// maxDue bounds one reply, and how long its script holds up other calls.
const maxDue = 1000

// Processing reads one page of orders in the open copy not known to be persisted, of all users, newest first. For each
// page it reads all: as many as the queue is long. VALIDATION: a cursor not ours.
func (s *Store) Processing(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	after, err := model.ParseCursor(q.Cursor)
	if err != nil {
		return model.OrderPage{}, err
	}
	page := model.OrderPage{Items: []model.Order{}}
	limit := model.PageSize(q.Limit)
	err = s.EachProcessing(ctx, q.VoucherID, func(order model.Order) error {
		if len(page.Items) == limit {
			last := page.Items[limit-1]
			page.NextCursor = model.Cursor{At: last.CreatedAt, ID: last.ID}.String()
			return errPageFull
		}
		at := order.CreatedAt.Compare(after.At)
		if after.ID == "" || at < 0 || at == 0 && order.ID < after.ID { // behind the cursor, newest first
			page.Items = append(page.Items, order)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errPageFull) {
		return model.OrderPage{}, err
	}
	return page, nil
}

var errPageFull = errors.New("the page is full")

// EachProcessing calls yield with every order of Processing, in its order, from one scan.
func (s *Store) EachProcessing(ctx context.Context, voucherID string, yield func(model.Order) error) error {
	epoch, err := s.opened(ctx, "list the pending orders", voucherID)
	if err != nil {
		return err
	}
	// All entries are sorted in memory: as Redis has them, a third of the memory of orders.
	type waiting struct {
		at        time.Time
		id, entry string
	}
	var all []waiting
	err = s.scan(ctx, "pending orders", voucherID, pendingKey(voucherID, epoch), true,
		func(orderID, entry string) error {
			all = append(all, waiting{pendingEntry(orderID, voucherID, entry).CreatedAt, orderID, entry})
			return nil
		})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b waiting) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(b.id, a.id)) })
	// A scan may meet an entry twice.
	all = slices.CompactFunc(all, func(a, b waiting) bool { return a.id == b.id })
	for _, w := range all {
		if err := yield(pendingEntry(w.id, voucherID, w.entry).Order); err != nil {
			return err
		}
	}
	return nil
}

// scanCount is how many fields one HSCAN looks at: a reply of some 100 KB.
const scanCount = 1000

// Buyers yields every user with a reserved or live order in the open copy, or who waits as of ServerTime, some twice.
// Who is marked before and stays so is among them, and who waits, unless the copy was changed meanwhile.
func (s *Store) Buyers(ctx context.Context, v model.Voucher, yield func(userID string) error) error {
	epoch, err := s.opened(ctx, "read the buyers", v.ID)
	if err == nil && v.Cooldown > 0 {
		err = s.cooling(ctx, v, epoch, yield)
	}
	if err != nil {
		return err
	}
	return s.scan(ctx, "buyers", v.ID, buyersKey(v.ID, epoch), true,
		func(userID, _ string) error { return yield(userID) })
}

// cooling reads who waits: behind the orders, which were closed before.
func (s *Store) cooling(ctx context.Context, v model.Voucher, epoch int64, yield func(userID string) error) error {
	page := &redis.ZRangeBy{Min: strconv.FormatInt(v.ServerTime.UnixMilli(), 10), Max: "+inf", Count: scanCount}
	for ; ; page.Offset += scanCount {
		limited, cancel := s.limited(ctx)
		members, err := s.client.ZRangeByScore(limited, epochKeys(v.ID, epoch)[3], page).Result()
		cancel()
		if err != nil {
			return fmt.Errorf("read who waits for voucher %s: %w", v.ID, silent(err))
		}
		for _, member := range members {
			if user, is := strings.CutPrefix(member, "/"); is {
				if err := yield(user); err != nil {
					return err
				}
			}
		}
		if len(members) < scanCount {
			return nil
		}
	}
}

// silent is the error of a question beside the scripts: where another kind of key lies, the copy is closed.
func silent(err error) error {
	if otherKind(err) {
		return model.ErrCopyClosed
	}
	return model.Unavailable("Redis does not answer.", err)
}

func (s *Store) opened(ctx context.Context, action, voucherID string) (int64, error) {
	c := s.do(ctx, "confirm", voucherID)
	return c.head, c.closed(action)
}

// Marks calls yield with every mark of one epoch, some perhaps twice, also of a closed copy; none without keys.
func (s *Store) Marks(
	ctx context.Context, voucherID string, epoch int64, yield func(userID, orderID string) error,
) error {
	return s.scan(ctx, "buyers", voucherID, buyersKey(voucherID, epoch), false, yield)
}

// Pendings is Marks for pending entries.
func (s *Store) Pendings(
	ctx context.Context, voucherID string, epoch int64, yield func(model.Reservation) error,
) error {
	return s.scan(ctx, "pending orders", voucherID, pendingKey(voucherID, epoch), false,
		func(orderID, entry string) error {
			return yield(pendingEntry(orderID, voucherID, entry))
		})
}

// Held finds one epoch's pending entries by order ids, none without keys. UNAVAILABLE: nothing is known.
func (s *Store) Held(
	ctx context.Context, voucherID string, epoch int64, orderIDs []string,
) (map[string]model.Reservation, error) {
	ctx, cancel := s.limited(ctx)
	defer cancel()
	entries, err := s.client.HMGet(ctx, pendingKey(voucherID, epoch), orderIDs...).Result()
	if err != nil && !otherKind(err) {
		return nil, model.Unavailable("Redis does not answer.",
			fmt.Errorf("look for orders of voucher %s: %w", voucherID, err))
	}
	held := map[string]model.Reservation{}
	for i, entry := range entries {
		if text, ok := entry.(string); ok {
			held[orderIDs[i]] = pendingEntry(orderIDs[i], voucherID, text)
		}
	}
	return held, nil
}

// scan reads a hash with a sentinel, without holding up other calls. ErrCopyClosed: it vanished meanwhile, as the
// sentinel was not met, or was never there, if whole is asked for.
func (s *Store) scan(
	ctx context.Context, what, voucherID, key string, whole bool, yield func(field, value string) error,
) error {
	if err := s.each(ctx, key, whole, yield); err != nil {
		return fmt.Errorf("read the %s of voucher %s: %w", what, voucherID, err)
	}
	return nil
}

func (s *Store) each(ctx context.Context, key string, whole bool, yield func(field, value string) error) error {
	met := false
	for cursor := uint64(0); ; whole = true {
		limited, cancel := s.limited(ctx)
		page, next, err := s.client.HScan(limited, key, cursor, "", scanCount).Result()
		cancel()
		if otherKind(err) {
			break // nothing of ours is there
		}
		if err != nil {
			return silent(err)
		}
		for i := 0; i+1 < len(page); i += 2 {
			if whole = true; page[i] == "" {
				met = true
			} else if err := yield(page[i], page[i+1]); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	if whole && !met {
		return model.ErrCopyClosed
	}
	return nil
}
