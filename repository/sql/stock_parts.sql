-- All parts of divided vouchers at one instant, because it is one statement: part 0, which is
-- the voucher's row, tells into how many it is divided.
-- Parameters: voucher ids, twice.
SELECT id AS voucher_id, 0 AS shard, shards, remaining, version, revision
FROM vouchers
WHERE id IN ?
UNION ALL
SELECT voucher_id, shard, 0 AS shards, remaining, version, revision
FROM voucher_stock
WHERE voucher_id IN ?
ORDER BY voucher_id, shard
