-- Indexes of the lists of vouchers: what tells the phase but for the clock, newest
-- last. sold_out stands for remaining, which changes with every sale: an UPDATE that
-- leaves sold_out as it is touches neither index. It is 0 while a voucher is paused,
-- because that phase comes before sold out: one beginning of vouchers_state is all
-- of a phase. Stored and not virtual, as orders.slot is. One ALTER: it happens wholly
-- or not at all. Repeatable, as 00006 is.
-- +goose Up
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND column_name = 'sold_out'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE vouchers
  ADD COLUMN sold_out TINYINT GENERATED ALWAYS AS (CASE WHEN remaining = 0 AND state <> ''paused'' THEN 1 ELSE 0 END) STORED,
  DROP KEY vouchers_newest,
  ADD KEY vouchers_newest (created_at, id, state, sold_out, begin_at, end_at),
  ADD KEY vouchers_state (state, sold_out, created_at, id, begin_at, end_at)');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
