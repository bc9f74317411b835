-- Orders, as in MySQL: slot is 1 while an order holds a unit and NULL once it is
-- closed; NULLs are distinct in a unique index.
-- +goose Up
CREATE TABLE IF NOT EXISTS orders (
  id TEXT NOT NULL PRIMARY KEY,
  voucher_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  price INTEGER NOT NULL,
  currency TEXT NOT NULL,
  created_at DATETIME NOT NULL,
  expires_at DATETIME NULL,
  paid_at DATETIME NULL,
  closed_at DATETIME NULL,
  slot INTEGER GENERATED ALWAYS AS (CASE WHEN status = 'unpaid' OR status = 'paid' THEN 1 ELSE NULL END) STORED,
  CONSTRAINT orders_times_are_numbers CHECK (typeof(created_at) = 'integer')
);
CREATE UNIQUE INDEX IF NOT EXISTS orders_one_live ON orders (voucher_id, user_id, slot);
CREATE INDEX IF NOT EXISTS orders_newest_of_user ON orders (user_id, created_at, id);
CREATE INDEX IF NOT EXISTS orders_newest_of_voucher ON orders (voucher_id, created_at, id, status);
