-- When an order became unpaid, as in MySQL.
-- +goose Up
ALTER TABLE orders ADD COLUMN unpaid_at DATETIME NULL;
