-- What the adapter remembers: which session of Stripe a payment is, and what it was asked with, so that the same call
-- again asks Stripe for the same.
CREATE TABLE IF NOT EXISTS payments (
  id TEXT NOT NULL PRIMARY KEY,
  checkout TEXT NOT NULL,              -- JSON, as the first call had it
  session_expires_at INTEGER NOT NULL, -- seconds since 1970
  session TEXT NOT NULL DEFAULT ''     -- Stripe's id; empty until it has answered
);
