-- Takes units from a part of a divided voucher, if it and the voucher are still what was read.
-- Parameters: units; voucher id; part, from 1; units; the voucher's revision as read.
-- Result: 1 row matched = taken; 0 = something changed, or the part is gone.
UPDATE voucher_stock
SET remaining = remaining - ?, version = version + 1
WHERE voucher_id = ? AND shard = ? AND remaining >= ? AND revision = ?
