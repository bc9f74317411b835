-- Takes units of a voucher, if it is still what was read, in one step and
-- without a lock before it: the row is locked by the UPDATE itself. The revision
-- stands for everything administrators and rebuilds decide.
-- Parameters: units; id; least and most that may remain; revision as read.
-- Result: 1 row matched = taken; 0 = something changed, read again.
UPDATE vouchers
SET remaining = remaining - ?, version = version + 1
WHERE id = ? AND remaining >= ? AND remaining <= ? AND revision = ?
