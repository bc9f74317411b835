-- Takes units of a voucher if nobody has changed its row since it was read.
-- Parameters: units; id; version as read; units.
-- Result: 1 row matched = taken; 0 = changed, begin anew.
UPDATE vouchers
SET remaining = remaining - ?, version = version + 1
WHERE id = ? AND version = ? AND remaining >= ?
