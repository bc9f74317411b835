-- The schema of version 1.0.0, as in MySQL. Times are microseconds since 1970 (UTC), and the checks hold that; for people:
-- datetime(begin_at / 1000000, 'unixepoch'). Text is compared byte for byte. Only what is unpaid is in orders_due. Only one
-- process uses the file, so that there is no redis_claim.
-- +goose Up
CREATE TABLE vouchers (
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
  revision INTEGER NOT NULL DEFAULT 1,
  copy_epoch INTEGER NOT NULL DEFAULT 0,
  copy_open_epoch INTEGER NOT NULL DEFAULT 0,
  copy_barrier INTEGER NULL,
  copy_progress_at DATETIME NULL,
  payment_window INTEGER NOT NULL DEFAULT 0,
  sold_out INTEGER GENERATED ALWAYS AS (CASE WHEN remaining = 0 AND state <> 'paused' THEN 1 ELSE 0 END) VIRTUAL,
  group_names TEXT NULL,
  early_group_names TEXT NULL,
  early_begin_at DATETIME NULL,
  waitlist BOOLEAN NOT NULL DEFAULT FALSE,
  waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0 AND (waiting = 0 OR remaining = 0)),
  places INTEGER NOT NULL DEFAULT 0,
  places_served INTEGER NOT NULL DEFAULT 0,
  cooldown INTEGER NOT NULL DEFAULT 0,
  allocation TEXT NOT NULL DEFAULT '',
  beacon TEXT NOT NULL DEFAULT '',
  time_zone TEXT NOT NULL DEFAULT '',
  valid_from DATETIME NULL,
  valid_until DATETIME NULL,
  valid_for INTEGER NOT NULL DEFAULT 0,
  withdrawal INTEGER NOT NULL DEFAULT 0,
  redeemers TEXT NULL,
  public_report INTEGER NOT NULL DEFAULT 0,
  written_off INTEGER NOT NULL DEFAULT 0,
  CONSTRAINT vouchers_remaining_not_negative CHECK (remaining >= 0),
  CONSTRAINT vouchers_remaining_within_stock CHECK (remaining <= stock),
  CONSTRAINT vouchers_window_not_empty CHECK (begin_at < end_at),
  CONSTRAINT vouchers_money_not_negative CHECK (price >= 0 AND face_value >= 0),
  CONSTRAINT vouchers_times_are_numbers CHECK (typeof(begin_at) = 'integer' AND typeof(end_at) = 'integer' AND typeof(created_at) = 'integer')
);
CREATE INDEX vouchers_newest ON vouchers (created_at, id, state, sold_out, begin_at, end_at);
CREATE INDEX vouchers_state ON vouchers (state, sold_out, created_at, id, begin_at, end_at);
CREATE INDEX vouchers_waiting ON vouchers (waiting);
CREATE INDEX vouchers_window ON vouchers (end_at, begin_at, early_begin_at);
CREATE TABLE orders (
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
  paid_reference TEXT NOT NULL DEFAULT '',
  slot INTEGER GENERATED ALWAYS AS (CASE WHEN status = 'unpaid' OR status = 'paid' OR status = 'redeemed' THEN 1 ELSE NULL END) STORED,
  cooldown_until DATETIME NULL,
  lapsed_at DATETIME NULL,
  CONSTRAINT orders_times_are_numbers CHECK (typeof(created_at) = 'integer')
);
CREATE INDEX orders_due ON orders (expires_at, id) WHERE status = 'unpaid';
CREATE INDEX orders_newest ON orders (status, created_at, id);
CREATE INDEX orders_newest_of_user ON orders (user_id, created_at, id);
CREATE INDEX orders_newest_of_voucher ON orders (voucher_id, created_at, id, status);
CREATE UNIQUE INDEX orders_one_live ON orders (voucher_id, user_id, slot);
CREATE TABLE order_codes (
  code_hash BLOB NOT NULL PRIMARY KEY,
  order_id TEXT NOT NULL
);
CREATE TABLE order_instants (
  instant TEXT NOT NULL,
  at DATETIME NOT NULL,
  order_id TEXT NOT NULL,
  PRIMARY KEY (instant, at, order_id)
) WITHOUT ROWID;
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
CREATE TABLE uses (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  order_id TEXT NOT NULL,
  used_at DATETIME NOT NULL,
  used_by TEXT NOT NULL,
  place TEXT NOT NULL DEFAULT '',
  undone_at DATETIME NULL,
  undone_by TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT '',
  live INTEGER GENERATED ALWAYS AS (CASE WHEN undone_at IS NULL THEN 1 ELSE NULL END) STORED
);
CREATE UNIQUE INDEX uses_one_live ON uses (order_id, live);
CREATE TABLE accounts (
  id TEXT NOT NULL PRIMARY KEY,
  username TEXT NOT NULL,
  username_key TEXT NOT NULL UNIQUE,
  role TEXT NOT NULL,
  password_hash TEXT NOT NULL,
  created_at DATETIME NOT NULL,
  version INTEGER NOT NULL DEFAULT 1,
  disabled BOOLEAN NOT NULL DEFAULT FALSE,
  changed_at DATETIME NULL,
  level TEXT NOT NULL DEFAULT '',
  group_names TEXT NULL
);
CREATE INDEX accounts_changed ON accounts (changed_at);
CREATE TABLE erasures (
  user_id TEXT NOT NULL PRIMARY KEY,
  pseudonym TEXT NOT NULL
);
CREATE TABLE idempotency_keys (
  scope BLOB NOT NULL,
  idempotency_key BLOB NOT NULL,
  fingerprint TEXT NOT NULL,
  answer TEXT NOT NULL,
  created_at DATETIME NOT NULL,
  PRIMARY KEY (scope, idempotency_key)
);
CREATE INDEX idempotency_keys_oldest ON idempotency_keys (created_at);
CREATE TABLE order_mode (
  id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  mode TEXT NOT NULL,
  deployment TEXT NOT NULL
);
INSERT INTO order_mode (id, mode, deployment) VALUES (1, 'sync', lower(hex(randomblob(8))));
CREATE TABLE releases (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  order_id TEXT NOT NULL,
  voucher_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  heir_id TEXT NULL,
  heir_user_id TEXT NULL,
  cooldown_until DATETIME NULL,
  written_off BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX releases_order ON releases (order_id);
CREATE INDEX releases_voucher ON releases (voucher_id, id);
CREATE INDEX releases_heirs ON releases (voucher_id, heir_id);
CREATE TABLE stock_intents (
  voucher_id TEXT NOT NULL PRIMARY KEY,
  stock INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  created_at DATETIME NOT NULL
);
CREATE TABLE rate_limits (
  id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  user_rate TEXT NULL,
  addr_rate TEXT NULL
);
INSERT INTO rate_limits (id) VALUES (1);
CREATE TABLE payments (
  id TEXT NOT NULL PRIMARY KEY,
  order_id TEXT NOT NULL,
  status TEXT NOT NULL,
  amount INTEGER NOT NULL,
  currency TEXT NOT NULL,
  url TEXT NOT NULL DEFAULT '',
  created_at DATETIME NOT NULL,
  decided_at DATETIME NULL,
  next_at DATETIME NULL,
  refunded INTEGER NOT NULL DEFAULT 0,
  disputed BOOLEAN NOT NULL DEFAULT FALSE,
  reference TEXT NOT NULL DEFAULT '',
  method TEXT NOT NULL DEFAULT ''
);
CREATE INDEX payments_reference ON payments (reference);
CREATE INDEX payments_decided ON payments (status, decided_at, amount);
CREATE INDEX payments_next ON payments (next_at);
CREATE INDEX payments_order ON payments (order_id, status);
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
CREATE INDEX refunds_closed ON refunds (status, closed_at, amount);
CREATE INDEX refunds_newest ON refunds (created_at, id, status);
CREATE INDEX refunds_next ON refunds (next_at);
CREATE INDEX refunds_order ON refunds (order_id);
CREATE UNIQUE INDEX refunds_payment ON refunds (payment_id);
CREATE TABLE webhook_messages (
  id BLOB NOT NULL PRIMARY KEY,
  digest BLOB NOT NULL,
  refusal TEXT NOT NULL DEFAULT '',
  received_at DATETIME NOT NULL
);
CREATE INDEX webhook_messages_oldest ON webhook_messages (received_at);
CREATE TABLE admin_log (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  changed_at DATETIME NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  was TEXT NULL,
  became TEXT NULL
);
CREATE INDEX admin_log_actor ON admin_log (actor, id);
CREATE INDEX admin_log_subject ON admin_log (subject, id);
CREATE TABLE events (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  type TEXT NOT NULL,
  subject TEXT NOT NULL,
  happened_at DATETIME NOT NULL,
  data TEXT NOT NULL,
  position INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX events_line ON events (position, happened_at);
CREATE INDEX events_subject ON events (subject);
CREATE TABLE event_receivers (
  url TEXT NOT NULL PRIMARY KEY,
  position INTEGER NOT NULL,
  replays INTEGER NOT NULL DEFAULT 0,
  delivered INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  stopped BOOLEAN NOT NULL DEFAULT FALSE,
  last_answer TEXT NOT NULL DEFAULT '',
  answered_at DATETIME NULL,
  next_at DATETIME NULL
);
INSERT INTO event_receivers (url, position) VALUES ('', 0);
CREATE TABLE answers (
  voucher_id TEXT NOT NULL,
  process TEXT NOT NULL,
  first_at DATETIME NOT NULL,
  latest_at DATETIME NOT NULL,
  by_code TEXT NOT NULL,
  PRIMARY KEY (voucher_id, process)
);
CREATE TABLE waitlist (
  voucher_id TEXT NOT NULL,
  place INTEGER NOT NULL,
  user_id TEXT NOT NULL,
  joined_at DATETIME NOT NULL,
  payment_window INTEGER NOT NULL,
  order_id TEXT NULL,
  waits INTEGER GENERATED ALWAYS AS (CASE WHEN order_id IS NULL THEN 1 ELSE NULL END) STORED,
  PRIMARY KEY (voucher_id, place)
);
CREATE UNIQUE INDEX waitlist_one_place ON waitlist (voucher_id, user_id, waits);
CREATE TABLE draws (
  voucher_id TEXT NOT NULL PRIMARY KEY,
  secret BLOB NOT NULL,
  entries INTEGER NOT NULL DEFAULT 0,
  closed_at DATETIME NULL,
  root BLOB NULL,
  position INTEGER NOT NULL DEFAULT 0,
  winners INTEGER NOT NULL DEFAULT 0,
  drawn_at DATETIME NULL,
  beacon_value TEXT NOT NULL DEFAULT '',
  beacon_at DATETIME NULL
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
