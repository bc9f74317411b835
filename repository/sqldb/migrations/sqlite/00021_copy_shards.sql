-- Into how many parts hot copies may be divided, as in MySQL.
-- +goose Up
ALTER TABLE vouchers ADD COLUMN copy_shards INTEGER NOT NULL DEFAULT 1;
