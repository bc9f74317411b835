package cache

import (
	"time"

	"seckill/model"
)

// entry is one reading of a voucher, kept in this instance's memory.
type entry struct {
	voucher model.Voucher // its ServerTime is the clock that decides the window, at the reading
	missing error         // NOT_FOUND: the voucher did not exist
	asked   time.Time     // before the query was sent, on this machine's monotonic clock
	told    time.Time     // after its answer had come
	buyers  *buyers       // of a sold-out voucher; nil while they are not known
	closed  bool          // its hot copy is closed; the voucher is the database's
}

// before reports whether the reading may have missed what happened at a time; nil is never.
func (e *entry) before(at *time.Time) bool { return at != nil && !e.asked.After(*at) }

// soldOut reports whether the sale was on, and nothing left, at the reading.
func (e *entry) soldOut() bool {
	return !e.closed && e.voucher.Remaining <= 0 && e.voucher.Refusal(e.voucher.ServerTime) == nil
}

// refusal answers what can be told without asking a server: nil means that the seller
// must be asked, model.ErrCopyClosed that the hot copy is closed.
//
// This instance's clock may be minutes off. So the time is that of the database (or of
// the hot copy) at the reading, plus what has passed since. The reading happened
// between asked and told, which leaves a margin at both edges of the window, in which
// the seller decides.
func (e *entry) refusal(userID string, now time.Time) error {
	if e.missing != nil {
		return e.missing
	}
	earliest := e.voucher.ServerTime.Add(now.Sub(e.told))
	latest := e.voucher.ServerTime.Add(now.Sub(e.asked))
	first, last := e.voucher.Refusal(earliest), e.voucher.Refusal(latest)
	if first != nil && last != nil && first.Code == last.Code {
		return last
	}
	if first != nil || last != nil {
		return nil //nolint:nilerr // within the margin: only the seller can tell
	}
	if e.closed {
		return model.ErrCopyClosed // also when nothing remains: units may have come back
	}
	if e.voucher.Remaining <= 0 && e.buyers != nil && !e.buyers.mayInclude(userID) {
		return model.SoldOut()
	}
	return nil
}
