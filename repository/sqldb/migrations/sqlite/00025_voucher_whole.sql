-- A voucher is one row again, as in MySQL.
-- +goose Up
UPDATE order_mode SET switching_to = 'schema 25' WHERE switching_to = '';
UPDATE vouchers
SET remaining = MIN(
      remaining + (SELECT COALESCE(SUM(remaining), 0) FROM voucher_stock WHERE voucher_id = vouchers.id AND shard < vouchers.shards),
      MAX(stock - (SELECT COUNT(slot) FROM orders WHERE voucher_id = vouchers.id), 0)),
    version = version + 1 + (SELECT COALESCE(SUM(version), 0) FROM voucher_stock WHERE voucher_id = vouchers.id),
    revision = revision + 1,
    copy_epoch = CASE WHEN copy_epoch > 0 THEN copy_epoch + 1 ELSE 0 END, copy_barrier = NULL, copy_progress_at = NULL
WHERE shards > 1 OR copy_shards > 1;
DROP TABLE voucher_stock;
DROP INDEX vouchers_newest;
DROP INDEX vouchers_state;
ALTER TABLE vouchers DROP COLUMN sold_out;
ALTER TABLE vouchers DROP COLUMN shards;
ALTER TABLE vouchers DROP COLUMN copy_shards;
ALTER TABLE vouchers ADD COLUMN sold_out INTEGER
  GENERATED ALWAYS AS (CASE WHEN remaining = 0 AND state <> 'paused' THEN 1 ELSE 0 END) VIRTUAL;
CREATE INDEX vouchers_newest ON vouchers (created_at, id, state, sold_out, begin_at, end_at);
CREATE INDEX vouchers_state ON vouchers (state, sold_out, created_at, id, begin_at, end_at);
