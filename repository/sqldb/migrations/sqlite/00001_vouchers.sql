-- Vouchers, as in MySQL. Times are microseconds since 1970 (UTC); for people:
-- datetime(begin_at / 1000000, 'unixepoch'). Text is compared byte for byte.
-- +goose Up
CREATE TABLE IF NOT EXISTS vouchers (
  id TEXT NOT NULL PRIMARY KEY,
  title TEXT NOT NULL,
  description TEXT NOT NULL,
  price INTEGER NOT NULL,
  face_value INTEGER NOT NULL,
  currency TEXT NOT NULL,
  stock INTEGER NOT NULL,
  remaining INTEGER NOT NULL,
  begin_at DATETIME NOT NULL,
  end_at DATETIME NOT NULL,
  state TEXT NOT NULL,
  version INTEGER NOT NULL,
  created_at DATETIME NOT NULL,
  CONSTRAINT vouchers_remaining_not_negative CHECK (remaining >= 0),
  CONSTRAINT vouchers_remaining_within_stock CHECK (remaining <= stock),
  CONSTRAINT vouchers_window_not_empty CHECK (begin_at < end_at),
  CONSTRAINT vouchers_money_not_negative CHECK (price >= 0 AND face_value >= 0),
  CONSTRAINT vouchers_times_are_numbers CHECK (typeof(begin_at) = 'integer' AND typeof(end_at) = 'integer' AND typeof(created_at) = 'integer')
);
CREATE INDEX IF NOT EXISTS vouchers_newest ON vouchers (created_at, id);
