-- The rules of a fair sale: whose token names one of the groups (a JSON list) may buy, and some may begin early.
-- Both are off by default. Each ALTER only adds columns at the end, which no server copies a table for. The index of 00012 has
-- the early beginning too: all instances ask twice a second which sales begin soon. Repeatable, as 00006 is.
-- +goose Up
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND column_name = 'group_names'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE vouchers
  ADD COLUMN group_names TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT ''who may buy, as JSON; NULL: everybody'',
  ADD COLUMN early_group_names TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT ''who may begin early, as JSON'',
  ADD COLUMN early_begin_at DATETIME(6) NULL COMMENT ''UTC''');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'accounts' AND column_name = 'group_names'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE accounts
  ADD COLUMN group_names TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT ''as JSON''');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @columns = (
  SELECT COUNT(*) FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND index_name = 'vouchers_window' AND column_name = 'early_begin_at'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE vouchers
  DROP KEY vouchers_window, ADD KEY vouchers_window (end_at, begin_at, early_begin_at)');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
