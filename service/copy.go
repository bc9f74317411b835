package service

import (
	"time"

	"seckill/model"
)

// copyOf is one reading of a voucher, kept in this instance's memory.
type copyOf struct {
	voucher model.Voucher // its ServerTime is the clock that decides the window, at the reading
	missing error         // NOT_FOUND: the voucher did not exist
	asked   time.Time     // before the query was sent, on this machine's monotonic clock
	told    time.Time     // after its answer had come
	buyers  *buyers       // of a sold-out voucher; nil while they are not known
	closed  bool          // its hot copy admits nobody; the voucher is the database's
}

// soldOut reports whether the sale was on, and nothing left, at the reading.
func (c *copyOf) soldOut() bool {
	return !c.closed && c.voucher.Remaining <= 0 && c.voucher.Refusal(c.voucher.ServerTime) == nil
}

// refusal answers what can be told without asking anybody: nil means "ask",
// model.ErrCopyClosed that asking is of no use. This instance's clock may be
// minutes off, so the clock of the database (or of the hot copy) at the
// reading is carried on by the time that has passed since. The reading
// happened somewhere between asked and told, which leaves a margin at both
// edges of the window; inside it whoever sells decides.
func (c *copyOf) refusal(userID string, now time.Time) error {
	if c.missing != nil {
		return c.missing
	}
	earliest := c.voucher.ServerTime.Add(now.Sub(c.told))
	latest := c.voucher.ServerTime.Add(now.Sub(c.asked))
	first, last := c.voucher.Refusal(earliest), c.voucher.Refusal(latest)
	if first != nil && last != nil && first.Code == last.Code {
		return last
	}
	if first != nil || last != nil {
		return nil //nolint:nilerr // between the two readings: only who sells can tell
	}
	if c.closed {
		return model.ErrCopyClosed // also if it was sold out before: units may have come back
	}
	if c.voucher.Remaining <= 0 && c.buyers != nil && !c.buyers.mayInclude(userID) {
		return model.SoldOut()
	}
	return nil
}
