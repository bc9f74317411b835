-- Takes units of a voucher whose row was locked by SELECT ... FOR UPDATE before:
-- nothing can have changed. The guard stays, a bug must not sell what is not there.
-- Parameters: units; id; units.
-- Result: 1 row matched = taken; 0 = a bug.
UPDATE vouchers
SET remaining = remaining - ?, version = version + 1
WHERE id = ? AND remaining >= ?
