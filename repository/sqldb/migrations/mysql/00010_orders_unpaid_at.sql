-- When an order became unpaid, which for an asynchronous one is later than its
-- admission. NULL for those that never did, and for those older than the column.
-- Repeatable, as 00006 is.
-- +goose Up
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'orders' AND column_name = 'unpaid_at'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE orders ADD COLUMN unpaid_at DATETIME(6) NULL');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
