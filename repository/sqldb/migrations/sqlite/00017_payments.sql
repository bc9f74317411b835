-- Money, as in MySQL.
-- +goose Up
CREATE TABLE payments (
  id TEXT NOT NULL PRIMARY KEY,
  order_id TEXT NOT NULL,
  status TEXT NOT NULL,
  amount INTEGER NOT NULL,
  currency TEXT NOT NULL,
  url TEXT NOT NULL DEFAULT '',
  created_at DATETIME NOT NULL,
  decided_at DATETIME NULL,
  next_at DATETIME NULL
);
CREATE INDEX payments_order ON payments (order_id, status);
CREATE INDEX payments_next ON payments (next_at);
CREATE TABLE refunds (
  id TEXT NOT NULL PRIMARY KEY,
  payment_id TEXT NOT NULL,
  order_id TEXT NOT NULL,
  status TEXT NOT NULL,
  amount INTEGER NOT NULL,
  currency TEXT NOT NULL,
  reason TEXT NOT NULL,
  actor TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  error TEXT NOT NULL DEFAULT '',
  created_at DATETIME NOT NULL,
  closed_at DATETIME NULL,
  next_at DATETIME NULL
);
CREATE UNIQUE INDEX refunds_payment ON refunds (payment_id);
CREATE INDEX refunds_order ON refunds (order_id);
CREATE INDEX refunds_newest ON refunds (created_at, id, status);
CREATE INDEX refunds_next ON refunds (next_at);
CREATE TABLE webhook_messages (
  id BLOB NOT NULL PRIMARY KEY,
  digest BLOB NOT NULL,
  refusal TEXT NOT NULL DEFAULT '',
  received_at DATETIME NOT NULL
);
CREATE INDEX webhook_messages_oldest ON webhook_messages (received_at);
