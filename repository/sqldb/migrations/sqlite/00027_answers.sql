-- What attempts to buy a voucher heard, as in MySQL.
-- +goose Up
CREATE TABLE answers (
  voucher_id TEXT NOT NULL,
  process TEXT NOT NULL,
  first_at DATETIME NOT NULL,
  latest_at DATETIME NOT NULL,
  by_code TEXT NOT NULL,
  PRIMARY KEY (voucher_id, process)
);
