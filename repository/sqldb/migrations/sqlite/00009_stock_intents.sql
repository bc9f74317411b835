-- A stock that is about to shrink, as in MySQL.
-- +goose Up
CREATE TABLE IF NOT EXISTS stock_intents (
  voucher_id TEXT NOT NULL PRIMARY KEY,
  stock INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  created_at DATETIME NOT NULL
);
