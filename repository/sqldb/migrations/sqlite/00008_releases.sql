-- The outbox of units that came back, as in MySQL.
-- +goose Up
CREATE TABLE IF NOT EXISTS releases (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  order_id TEXT NOT NULL,
  voucher_id TEXT NOT NULL,
  user_id TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS releases_order ON releases (order_id);
