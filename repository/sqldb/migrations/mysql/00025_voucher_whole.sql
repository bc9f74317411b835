-- The versions before cannot sell with this schema, and are told so in order_mode, see
-- repository/mode.go.
-- A voucher is one row again: its parts are added up in it. Its hot copies, which may lie in
-- parts too, are closed: the next epoch has begun, and a rebuild makes a copy in one piece.
-- Whoever sells or returns a unit locks the voucher's row or one of its parts. So all are
-- locked first, in the order in which sales lock them; who had to wait finds no part and
-- reads again. The sum is never more than the database can sell, whatever a hand has done to
-- the parts. The table is dropped last: it is there as long as the columns are. Repeatable,
-- as 00006 is.
-- +goose Up
UPDATE order_mode SET switching_to = 'schema 25' WHERE switching_to = '';
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND column_name = 'shards'
);
SET @change = IF(@columns = 0, 'DO 0', 'SELECT COUNT(voucher_stock.shard) INTO @locked
  FROM vouchers FORCE INDEX (PRIMARY)
  LEFT JOIN voucher_stock FORCE INDEX (PRIMARY) ON voucher_stock.voucher_id = vouchers.id
  WHERE vouchers.shards > 1 OR vouchers.copy_shards > 1
  FOR UPDATE');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @change = IF(@columns = 0, 'DO 0', 'UPDATE vouchers
  SET remaining = LEAST(
        remaining + (SELECT COALESCE(SUM(remaining), 0) FROM voucher_stock WHERE voucher_id = vouchers.id AND shard < vouchers.shards),
        GREATEST(stock - (SELECT COUNT(slot) FROM orders WHERE voucher_id = vouchers.id), 0)),
      version = version + 1 + (SELECT COALESCE(SUM(version), 0) FROM voucher_stock WHERE voucher_id = vouchers.id),
      revision = revision + 1,
      copy_epoch = CASE WHEN copy_epoch > 0 THEN copy_epoch + 1 ELSE 0 END, copy_barrier = NULL, copy_progress_at = NULL,
      shards = 1, copy_shards = 1
  WHERE shards > 1 OR copy_shards > 1');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @change = IF(@columns = 0, 'DO 0', 'DELETE FROM voucher_stock');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @change = IF(@columns = 0, 'DO 0', 'ALTER TABLE vouchers
  MODIFY COLUMN sold_out TINYINT GENERATED ALWAYS AS (CASE WHEN remaining = 0 AND state <> ''paused'' THEN 1 ELSE 0 END) STORED');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @change = IF(@columns = 0, 'DO 0', 'ALTER TABLE vouchers DROP COLUMN shards, DROP COLUMN copy_shards');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
DROP TABLE IF EXISTS voucher_stock;
