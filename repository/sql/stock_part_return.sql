-- Returns units to a part of a divided voucher.
-- Parameters: units; voucher id; part, from 1.
-- Result: 1 row matched = returned; 0 = the part is gone.
UPDATE voucher_stock
SET remaining = remaining + ?, version = version + 1
WHERE voucher_id = ? AND shard = ?
