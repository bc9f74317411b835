-- Into how many parts the hot copies of a voucher may be divided that are not replaced yet:
-- the latest that was opened, and those that were begun since. A rebuild closes all of them,
-- however the voucher is divided by then. Repeatable, as 00006 is.
-- +goose Up
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND column_name = 'copy_shards'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE vouchers
  ADD COLUMN copy_shards SMALLINT NOT NULL DEFAULT 1 COMMENT ''parts that hot copies may have''');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
