package service

import (
	"time"

	"seckill/model"
)

// copyOf is one reading of a voucher, kept in this instance's memory.
type copyOf struct {
	voucher model.Voucher // its ServerTime is the database's clock at the reading
	missing error         // NOT_FOUND: the voucher did not exist
	asked   time.Time     // before the query was sent, on this machine's monotonic clock
	told    time.Time     // after its answer had come
	buyers  *buyers       // of a sold-out voucher; nil while they are not known
}

// soldOut reports whether the sale was on, and nothing left, at the reading.
func (c *copyOf) soldOut() bool {
	return c.voucher.Remaining <= 0 && c.voucher.Refusal(c.voucher.ServerTime) == nil
}

// refusal answers what can be told without asking anybody: nil means "ask".
// This instance's clock may be minutes off, so the database's clock at the
// reading is carried on by the time that has passed since. The reading
// happened somewhere between asked and told, which leaves a margin at both
// edges of the window; inside it the database decides.
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
		return nil //nolint:nilerr // between the two readings: only the database can tell
	}
	if c.voucher.Remaining <= 0 && c.buyers != nil && !c.buyers.mayInclude(userID) {
		return model.SoldOut()
	}
	return nil
}
