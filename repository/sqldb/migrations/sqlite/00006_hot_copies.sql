-- What asynchronous orders need of a voucher, as in MySQL. goose runs this in
-- one transaction, in SQLite with its DDL.
-- +goose Up
ALTER TABLE vouchers ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;
ALTER TABLE vouchers ADD COLUMN copy_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE vouchers ADD COLUMN copy_open_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE vouchers ADD COLUMN copy_barrier INTEGER NULL;
ALTER TABLE vouchers ADD COLUMN copy_progress_at DATETIME NULL;
