-- The newest orders of a status, of all vouchers: all orders are those of each status. New entries go behind
-- those of the other unpaid orders, so that one page takes them all. Repeatable, as 00006 is.
-- +goose Up
SET @indexes = (
  SELECT COUNT(*) FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'orders' AND index_name = 'orders_newest'
);
SET @change = IF(@indexes > 0, 'DO 0', 'ALTER TABLE orders ADD KEY orders_newest (status, created_at, id)');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
