-- The rules of a fair sale, as in MySQL.
-- +goose Up
ALTER TABLE vouchers ADD COLUMN group_names TEXT NULL;
ALTER TABLE vouchers ADD COLUMN early_group_names TEXT NULL;
ALTER TABLE vouchers ADD COLUMN early_begin_at DATETIME NULL;
ALTER TABLE accounts ADD COLUMN group_names TEXT NULL;
DROP INDEX IF EXISTS vouchers_window;
CREATE INDEX vouchers_window ON vouchers (end_at, begin_at, early_begin_at);
