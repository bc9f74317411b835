-- Returns one unit of a voucher whose row is locked.
-- Parameter: id.
-- Result: 1 row matched = returned; 0 = there is no such voucher.
UPDATE vouchers
SET remaining = remaining + 1, version = version + 1
WHERE id = ?
