-- Returns units of a voucher whose row is locked.
-- Parameters: units; id.
-- Result: 1 row matched = returned; 0 = there is no such voucher.
UPDATE vouchers
SET remaining = remaining + ?, version = version + 1
WHERE id = ?
