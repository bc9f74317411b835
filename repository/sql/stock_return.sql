-- Returns units of a voucher whose row is locked, and for which nobody waits.
-- Parameters: units; id.
-- Result: 1 row matched = returned; 0 = there is no such voucher, or somebody waits.
UPDATE vouchers
SET remaining = remaining + ?, version = version + 1
WHERE id = ? AND waiting = 0
