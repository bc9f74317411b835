-- The cool-down of a fair sale: whose order ended unpaid waits before another one of the same voucher. cooldown_until
-- stands in the order that started it, and beside the unit that its hot copy is to be told of; it is NULL for all other orders.
-- Each ALTER only adds a column at the end, which no server copies a table for. Repeatable, as 00006 is.
-- +goose Up
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND column_name = 'cooldown'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE vouchers
  ADD COLUMN cooldown BIGINT NOT NULL DEFAULT 0 COMMENT ''nanoseconds; 0: none''');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'orders' AND column_name = 'cooldown_until'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE orders
  ADD COLUMN cooldown_until DATETIME(6) NULL COMMENT ''UTC, until when its user waits before another one''');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'releases' AND column_name = 'cooldown_until'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE releases
  ADD COLUMN cooldown_until DATETIME(6) NULL COMMENT ''UTC''');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
