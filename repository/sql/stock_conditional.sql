-- Takes units of a voucher, if it is still what was read, in one step and
-- without a lock before it: the row is locked by the UPDATE itself.
-- Parameters: units; id; least and most that may remain; state, begin, end and
-- price as read.
-- Result: 1 row matched = taken; 0 = something changed, read again.
UPDATE vouchers
SET remaining = remaining - ?, version = version + 1
WHERE id = ? AND remaining >= ? AND remaining <= ?
  AND state = ? AND begin_at = ? AND end_at = ? AND price = ?
