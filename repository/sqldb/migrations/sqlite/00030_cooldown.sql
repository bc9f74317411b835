-- The cool-down of a fair sale, as in MySQL.
-- +goose Up
ALTER TABLE vouchers ADD COLUMN cooldown INTEGER NOT NULL DEFAULT 0;
ALTER TABLE orders ADD COLUMN cooldown_until DATETIME NULL;
ALTER TABLE releases ADD COLUMN cooldown_until DATETIME NULL;
