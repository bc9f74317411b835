-- The later life of orders, as in MySQL. SQLite cannot change a generated column: the
-- table is made anew. Only what is unpaid is in orders_due.
-- +goose Up
CREATE TABLE orders_anew (
  id TEXT NOT NULL PRIMARY KEY,
  voucher_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  price INTEGER NOT NULL,
  currency TEXT NOT NULL,
  created_at DATETIME NOT NULL,
  unpaid_at DATETIME NULL,
  expires_at DATETIME NULL,
  paid_at DATETIME NULL,
  redeemed_at DATETIME NULL,
  closed_at DATETIME NULL,
  sealed_code BLOB NULL,
  slot INTEGER GENERATED ALWAYS AS (CASE WHEN status = 'unpaid' OR status = 'paid' OR status = 'redeemed' THEN 1 ELSE NULL END) STORED,
  CONSTRAINT orders_times_are_numbers CHECK (typeof(created_at) = 'integer')
);
INSERT INTO orders_anew (id, voucher_id, user_id, status, reason, price, currency, created_at, unpaid_at, expires_at, paid_at, closed_at)
SELECT id, voucher_id, user_id, status, reason, price, currency, created_at, unpaid_at, expires_at, paid_at, closed_at FROM orders;
DROP TABLE orders;
ALTER TABLE orders_anew RENAME TO orders;
CREATE UNIQUE INDEX orders_one_live ON orders (voucher_id, user_id, slot);
CREATE INDEX orders_newest_of_user ON orders (user_id, created_at, id);
CREATE INDEX orders_newest_of_voucher ON orders (voucher_id, created_at, id, status);
CREATE INDEX orders_due ON orders (expires_at, id) WHERE status = 'unpaid';
ALTER TABLE vouchers ADD COLUMN payment_window INTEGER NOT NULL DEFAULT 0;
CREATE TABLE order_codes (
  code_hash BLOB NOT NULL PRIMARY KEY,
  order_id TEXT NOT NULL
);
CREATE TABLE order_history (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  order_id TEXT NOT NULL,
  moved_at DATETIME NOT NULL,
  from_status TEXT NOT NULL,
  to_status TEXT NOT NULL,
  actor TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX order_history_order ON order_history (order_id, id);
