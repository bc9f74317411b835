-- Draws, as in MySQL.
-- +goose Up
CREATE TABLE draws (
  voucher_id TEXT NOT NULL PRIMARY KEY,
  secret BLOB NOT NULL,
  entries INTEGER NOT NULL DEFAULT 0,
  closed_at DATETIME NULL,
  root BLOB NULL,
  position INTEGER NOT NULL DEFAULT 0,
  winners INTEGER NOT NULL DEFAULT 0,
  drawn_at DATETIME NULL
);
CREATE INDEX draws_due ON draws (drawn_at, voucher_id);
CREATE TABLE draw_entries (
  voucher_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  nonce BLOB NOT NULL,
  entered_at DATETIME NOT NULL,
  PRIMARY KEY (voucher_id, user_id)
) WITHOUT ROWID;
CREATE TABLE draw_places (
  voucher_id TEXT NOT NULL,
  place INTEGER NOT NULL,
  user_id TEXT NOT NULL,
  leaf BLOB NOT NULL,
  PRIMARY KEY (voucher_id, place)
) WITHOUT ROWID;
ALTER TABLE vouchers ADD COLUMN allocation TEXT NOT NULL DEFAULT '';
