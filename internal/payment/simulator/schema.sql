-- The simulator's ledger: payments, refunds, and the webhooks that are to be sent. Times are
-- microseconds since 1970, amounts minor units.
CREATE TABLE IF NOT EXISTS payments (
  id TEXT NOT NULL PRIMARY KEY,
  order_id TEXT NOT NULL,
  amount INTEGER NOT NULL CHECK (amount >= 0),
  currency TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'succeeded', 'failed')),
  refunded INTEGER NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND amount),
  approve_at INTEGER NULL -- a delayed payment approves itself then
);
CREATE INDEX IF NOT EXISTS payments_delayed ON payments (approve_at) WHERE approve_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS refunds (
  idempotency_key TEXT NOT NULL PRIMARY KEY,
  payment_id TEXT NOT NULL,
  amount INTEGER NOT NULL,
  currency TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS disputes (
  payment_id TEXT NOT NULL PRIMARY KEY -- there is a row as long as nobody has decided it
);
CREATE TABLE IF NOT EXISTS webhooks (
  id TEXT NOT NULL PRIMARY KEY,
  body BLOB NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  send_at INTEGER NULL -- NULL: delivered, lost on purpose, or given up
);
CREATE INDEX IF NOT EXISTS webhooks_due ON webhooks (send_at) WHERE send_at IS NOT NULL;
