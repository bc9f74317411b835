-- What asynchronous orders need of a voucher: the revision of what administrators
-- decide, and the epochs of its hot copy. copy_epoch is the latest copy, which is
-- open while copy_open_epoch is the same; copy_barrier is the last message that
-- counts for copy_open_epoch once it was closed.
-- One ALTER, and only if it has not happened: DDL commits by itself, a process
-- that dies right after it must be able to repeat, and MySQL knows no ADD COLUMN
-- IF NOT EXISTS.
-- +goose Up
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND column_name = 'copy_epoch'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE vouchers
  ADD COLUMN revision BIGINT NOT NULL DEFAULT 1,
  ADD COLUMN copy_epoch BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN copy_open_epoch BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN copy_barrier BIGINT NULL,
  ADD COLUMN copy_progress_at DATETIME(6) NULL');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
