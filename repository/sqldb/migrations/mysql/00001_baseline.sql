-- The schema of version 1.0.0. Ids, states and codes are ascii_bin: compared byte for byte. Times are UTC.
-- IF NOT EXISTS, because DDL commits by itself: a process that dies right after it must be able to repeat.
-- No table has foreign keys: each INSERT of an order would lock its voucher's row shared, before the UPDATE locks it
-- exclusively, and two such transactions deadlock. Orders are written by one piece of code that has read the voucher, and
-- vouchers are never deleted.
-- +goose Up
-- Vouchers: what is sold. The row is the stock, and every sale goes through it. sold_out stands for remaining, which changes
-- with every sale, in the keys of lists: an UPDATE that leaves it as it is leaves those keys alone. waiting is how many users
-- wait, places the last place that was given, and places_served the last one that became an order. While anybody waits,
-- nothing remains for the open sale: the row itself refuses it.
-- revision is that of what administrators decide. copy_epoch is the latest hot copy, which is open while copy_open_epoch is the
-- same; copy_barrier is the last message that counts for copy_open_epoch once it was closed.
CREATE TABLE IF NOT EXISTS vouchers (
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  title VARCHAR(200) NOT NULL,
  description TEXT NOT NULL,
  price BIGINT NOT NULL COMMENT 'minor units of currency',
  face_value BIGINT NOT NULL COMMENT 'minor units of currency',
  currency CHAR(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'ISO 4217',
  stock BIGINT NOT NULL COMMENT 'units ever offered',
  remaining BIGINT NOT NULL COMMENT 'units left to take',
  begin_at DATETIME(6) NOT NULL COMMENT 'UTC',
  end_at DATETIME(6) NOT NULL COMMENT 'UTC, exclusive',
  state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version BIGINT NOT NULL COMMENT 'grows with every change of the row',
  created_at DATETIME(6) NOT NULL COMMENT 'UTC',
  revision BIGINT NOT NULL DEFAULT 1,
  copy_epoch BIGINT NOT NULL DEFAULT 0,
  copy_open_epoch BIGINT NOT NULL DEFAULT 0,
  copy_barrier BIGINT NULL,
  copy_progress_at DATETIME(6) NULL COMMENT 'UTC',
  sold_out TINYINT GENERATED ALWAYS AS (CASE WHEN remaining = 0 AND state <> 'paused' THEN 1 ELSE 0 END) STORED,
  payment_window BIGINT NOT NULL DEFAULT 0 COMMENT 'nanoseconds; 0: that of the settings',
  group_names TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'who may buy, as JSON; NULL: everybody',
  early_group_names TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'who may begin early, as JSON',
  early_begin_at DATETIME(6) NULL COMMENT 'UTC',
  waitlist BOOLEAN NOT NULL DEFAULT FALSE,
  waiting BIGINT NOT NULL DEFAULT 0,
  places BIGINT NOT NULL DEFAULT 0,
  places_served BIGINT NOT NULL DEFAULT 0,
  cooldown BIGINT NOT NULL DEFAULT 0 COMMENT 'nanoseconds; 0: none',
  allocation VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'empty: first come; draw',
  beacon VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'what will be drawn in public, of a draw',
  time_zone VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'in which people say its times; empty: each in his own',
  valid_from DATETIME(6) NULL COMMENT 'UTC, of codes, as the end',
  valid_until DATETIME(6) NULL COMMENT 'UTC',
  valid_for BIGINT NOT NULL DEFAULT 0 COMMENT 'nanoseconds from payment; 0: for good',
  withdrawal BIGINT NOT NULL DEFAULT 0 COMMENT 'nanoseconds from payment; 0: none',
  redeemers TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'groups of cashiers, as JSON; NULL: all',
  public_report BOOLEAN NOT NULL DEFAULT FALSE,
  written_off BIGINT NOT NULL DEFAULT 0 COMMENT 'units of used orders that were paid back; stock is without them',
  PRIMARY KEY (id),
  KEY vouchers_newest (created_at, id, state, sold_out, begin_at, end_at),
  KEY vouchers_state (state, sold_out, created_at, id, begin_at, end_at),
  KEY vouchers_window (end_at, begin_at, early_begin_at),
  KEY vouchers_waiting (waiting),
  CONSTRAINT vouchers_remaining_not_negative CHECK (remaining >= 0),
  CONSTRAINT vouchers_remaining_within_stock CHECK (remaining <= stock),
  CONSTRAINT vouchers_window_not_empty CHECK (begin_at < end_at),
  CONSTRAINT vouchers_money_not_negative CHECK (price >= 0 AND face_value >= 0),
  CONSTRAINT vouchers_waiting_before_sale CHECK (waiting >= 0 AND (waiting = 0 OR remaining = 0))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- Orders. slot is 1 while an order holds a unit and NULL once it is closed, so that the unique key allows one live order of a
-- user for a voucher and any number of closed ones. Rows are never deleted: a repeated message may name them.
-- orders_newest_of_voucher ends in status to count a voucher's orders by status from the index alone. orders_due finds what is
-- to expire. sealed_code is what its owner is shown; order_codes finds an order by the keyed hash of its code, and
-- order_instants finds those that were paid, redeemed or closed in a span of time. These are tables of their own because an index
-- of orders has an entry for every order, also for one without a code or an instant.
CREATE TABLE IF NOT EXISTS orders (
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'why it failed',
  price BIGINT NOT NULL COMMENT 'minor units of currency, as it was when ordered',
  currency CHAR(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'ISO 4217',
  created_at DATETIME(6) NOT NULL COMMENT 'UTC, when it was admitted',
  expires_at DATETIME(6) NULL COMMENT 'UTC, when an unpaid one lapses',
  paid_at DATETIME(6) NULL COMMENT 'UTC',
  closed_at DATETIME(6) NULL COMMENT 'UTC',
  slot TINYINT GENERATED ALWAYS AS (CASE WHEN status = 'unpaid' OR status = 'paid' OR status = 'redeemed' THEN 1 ELSE NULL END) STORED,
  unpaid_at DATETIME(6) NULL COMMENT 'UTC',
  redeemed_at DATETIME(6) NULL COMMENT 'UTC',
  sealed_code VARBINARY(255) NULL COMMENT 'what the buyer shows, encrypted',
  paid_reference VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'of one paid elsewhere',
  cooldown_until DATETIME(6) NULL COMMENT 'UTC, until when its user waits before another one',
  lapsed_at DATETIME(6) NULL COMMENT 'UTC, the end of its code that other systems know of',
  PRIMARY KEY (id),
  UNIQUE KEY orders_one_live (voucher_id, user_id, slot),
  KEY orders_newest_of_user (user_id, created_at, id),
  KEY orders_newest_of_voucher (voucher_id, created_at, id, status),
  KEY orders_due (status, expires_at),
  KEY orders_newest (status, created_at, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE IF NOT EXISTS order_codes (
  code_hash BINARY(32) NOT NULL COMMENT 'HMAC-SHA-256',
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (code_hash)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS order_instants (
  instant VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'paid, redeemed or closed',
  at DATETIME(6) NOT NULL COMMENT 'UTC, as in the order',
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (instant, at, order_id)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS order_history (
  id BIGINT NOT NULL AUTO_INCREMENT,
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  moved_at DATETIME(6) NOT NULL COMMENT 'UTC',
  from_status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  to_status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  actor VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'a user, system or provider',
  reason VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL DEFAULT '',
  PRIMARY KEY (id),
  KEY order_history_order (order_id, id)
) ENGINE = InnoDB;

-- Uses of codes. live is 1 while a use is not undone: the unique key allows one such use of an order.
CREATE TABLE IF NOT EXISTS uses (
  id BIGINT NOT NULL AUTO_INCREMENT,
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  used_at DATETIME(6) NOT NULL COMMENT 'UTC',
  used_by VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'an administrator',
  place VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'a group of the redeemers',
  undone_at DATETIME(6) NULL COMMENT 'UTC',
  undone_by VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  reason VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL DEFAULT '' COMMENT 'why it was undone',
  live TINYINT GENERATED ALWAYS AS (CASE WHEN undone_at IS NULL THEN 1 ELSE NULL END) STORED,
  PRIMARY KEY (id),
  UNIQUE KEY uses_one_live (order_id, live)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- Accounts of those who log in here; a buyer needs none. username_key is the username in lower case: unique without regard
-- to case.
CREATE TABLE IF NOT EXISTS accounts (
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  username VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  username_key VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  role VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  password_hash VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'PHC string',
  created_at DATETIME(6) NOT NULL COMMENT 'UTC',
  version BIGINT NOT NULL DEFAULT 1,
  disabled BOOLEAN NOT NULL DEFAULT FALSE,
  changed_at DATETIME(6) NULL COMMENT 'UTC, NULL is never',
  level VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'of an administrator',
  group_names TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'as JSON',
  PRIMARY KEY (id),
  UNIQUE KEY accounts_username (username_key),
  KEY accounts_changed (changed_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- Users who are being erased, with what replaces their ids. A row is gone when nothing is left of the id.
CREATE TABLE IF NOT EXISTS erasures (
  user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  pseudonym VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (user_id)
) ENGINE = InnoDB;

-- Answers given under an Idempotency-Key, written in the transaction of the change itself. scope and key are binary: no
-- collation pads or folds them.
CREATE TABLE IF NOT EXISTS idempotency_keys (
  scope VARBINARY(255) NOT NULL COMMENT 'who calls what',
  idempotency_key VARBINARY(255) NOT NULL,
  fingerprint VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'hash of what was asked',
  answer MEDIUMTEXT NOT NULL COMMENT 'JSON',
  created_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (scope, idempotency_key),
  KEY idempotency_keys_oldest (created_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- Locks of the users in lock mode mysql, in the layout of the lock package's MySQL store (lock/sql/table.sql). Names and owners
-- are bytes, compared byte for byte; times are by the database's clock. A row stays after its lock was released, because it
-- carries the token on; the store sweeps it later.
CREATE TABLE IF NOT EXISTS seckill_locks (
  name VARBINARY(255) NOT NULL,
  owner VARBINARY(64) NOT NULL DEFAULT '' COMMENT 'empty: free',
  holds INT NOT NULL DEFAULT 0,
  token BIGINT NOT NULL,
  expires_at DATETIME(6) NOT NULL,
  released VARBINARY(64) NOT NULL DEFAULT '' COMMENT 'the last owner that gave it back',
  PRIMARY KEY (name),
  KEY seckill_locks_expires (expires_at)
) ENGINE = InnoDB;

-- How this database is sold from: one row. Who takes units keeps it locked (shared) from reading the voucher to COMMIT.
-- deployment names this database towards queues that several deployments may share.
CREATE TABLE IF NOT EXISTS order_mode (
  id TINYINT NOT NULL,
  mode VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  deployment VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT order_mode_is_one_row CHECK (id = 1)
) ENGINE = InnoDB;
INSERT INTO order_mode (id, mode, deployment)
SELECT 1, 'sync', SUBSTRING(REPLACE(UUID(), '-', ''), 1, 16) FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM order_mode);

-- The outbox of units that came back: written in the transaction that gives the unit back, gone once the voucher's hot copy
-- knows. A release names the order that got the unit.
CREATE TABLE IF NOT EXISTS releases (
  id BIGINT NOT NULL AUTO_INCREMENT,
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  heir_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'the order that got the unit',
  heir_user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  cooldown_until DATETIME(6) NULL COMMENT 'UTC',
  written_off BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'the unit is used: it leaves the stock',
  PRIMARY KEY (id),
  KEY releases_order (order_id),
  KEY releases_voucher (voucher_id, id),
  KEY releases_heirs (voucher_id, heir_id)
) ENGINE = InnoDB;

-- A stock that is about to shrink: the hot copy is lowered first, and if the process dies in between, this row tells that the
-- copy must be put right.
CREATE TABLE IF NOT EXISTS stock_intents (
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  stock BIGINT NOT NULL COMMENT 'units ever offered, as intended',
  revision BIGINT NOT NULL COMMENT 'of the voucher when it was intended',
  created_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (voucher_id)
) ENGINE = InnoDB;

-- Which Redis sells this database: one row, renewed while it does.
CREATE TABLE IF NOT EXISTS redis_claim (
  id TINYINT NOT NULL,
  identity VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'empty: none yet',
  renewed_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  CONSTRAINT redis_claim_is_one_row CHECK (id = 1)
) ENGINE = InnoDB;
INSERT INTO redis_claim (id, identity, renewed_at)
SELECT 1, '', UTC_TIMESTAMP(6) FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM redis_claim);

-- The rate limits that an administrator has set, in the form of the settings; they win over the settings of every instance.
-- One row.
CREATE TABLE IF NOT EXISTS rate_limits (
  id TINYINT NOT NULL,
  user_rate VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'NULL: that of the settings',
  addr_rate VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'NULL: that of the settings',
  PRIMARY KEY (id),
  CONSTRAINT rate_limits_is_one_row CHECK (id = 1)
) ENGINE = InnoDB;
INSERT INTO rate_limits (id)
SELECT 1 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM rate_limits);

-- Money. A payment is stored before the provider knows of it; its id is the key under which the provider starts it once. A
-- refund gives the whole of one payment back, so that one payment has one refund at the most; its id is the provider's key
-- too. What was paid elsewhere has a reference, and a person gives it back. next_at is when the provider is asked, or the refund is tried, next. A webhook's message is stored in the transaction
-- that applies it.
CREATE TABLE IF NOT EXISTS payments (
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount BIGINT NOT NULL COMMENT 'minor units of currency',
  currency CHAR(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'ISO 4217',
  url VARCHAR(2048) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'where the buyer pays',
  created_at DATETIME(6) NOT NULL COMMENT 'UTC',
  decided_at DATETIME(6) NULL COMMENT 'UTC',
  next_at DATETIME(6) NULL COMMENT 'UTC; NULL: decided',
  refunded BIGINT NOT NULL DEFAULT 0 COMMENT 'minor units, of the amount',
  disputed BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'the code of its order rests',
  reference VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'made elsewhere; empty: at the provider',
  method VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'how, elsewhere',
  PRIMARY KEY (id),
  KEY payments_reference (reference),
  KEY payments_order (order_id, status),
  KEY payments_next (next_at),
  KEY payments_decided (status, decided_at, amount)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS refunds (
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  payment_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount BIGINT NOT NULL COMMENT 'minor units of currency',
  currency CHAR(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'ISO 4217',
  reason VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  actor VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'a user or system',
  attempts INT NOT NULL DEFAULT 0,
  error VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL DEFAULT '' COMMENT 'of the last attempt',
  created_at DATETIME(6) NOT NULL COMMENT 'UTC',
  closed_at DATETIME(6) NULL COMMENT 'UTC, when it was done or given up',
  next_at DATETIME(6) NULL COMMENT 'UTC; NULL: closed',
  PRIMARY KEY (id),
  UNIQUE KEY refunds_payment (payment_id),
  KEY refunds_order (order_id),
  KEY refunds_newest (created_at, id, status),
  KEY refunds_next (next_at),
  KEY refunds_closed (status, closed_at, amount)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS webhook_messages (
  id VARBINARY(255) NOT NULL,
  digest BINARY(32) NOT NULL COMMENT 'SHA-256 of the body',
  refusal VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL DEFAULT '' COMMENT 'why it was not applied',
  received_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY webhook_messages_oldest (received_at)
) ENGINE = InnoDB;

-- What administrators changed, written in the transaction of the change. was and became are the members before and after:
-- SQL uses those words itself.
CREATE TABLE IF NOT EXISTS admin_log (
  id BIGINT NOT NULL AUTO_INCREMENT,
  changed_at DATETIME(6) NOT NULL COMMENT 'UTC',
  actor VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  action VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subject VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'id of a voucher or an order',
  was MEDIUMTEXT CHARACTER SET utf8mb4 NULL COMMENT 'JSON',
  became MEDIUMTEXT CHARACTER SET utf8mb4 NULL COMMENT 'JSON',
  PRIMARY KEY (id),
  KEY admin_log_actor (actor, id),
  KEY admin_log_subject (subject, id)
) ENGINE = InnoDB;

-- The outbox of events for other systems: written in the transaction of the change. Empty while nobody is to hear of them. The
-- rows of one order are in order, because its row is locked before each is written. A committed row gets its position later,
-- behind all that have one: ids are given before the COMMIT, so that a reader who goes by them would skip a slow transaction.
-- Without receivers a row is gone once the stream has it, else a week later.
CREATE TABLE IF NOT EXISTS events (
  id BIGINT NOT NULL AUTO_INCREMENT,
  type VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subject VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'id of an order or a voucher',
  happened_at DATETIME(6) NOT NULL COMMENT 'UTC',
  data MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL COMMENT 'JSON',
  position BIGINT NOT NULL DEFAULT 0 COMMENT '0: none yet',
  PRIMARY KEY (id),
  KEY events_line (position, happened_at),
  KEY events_subject (subject)
) ENGINE = InnoDB;
-- How far each receiver of events has come, by its URL or the name of the stream. The row without a URL has the last position
-- that was given, and is locked by who gives the next ones.
CREATE TABLE IF NOT EXISTS event_receivers (
  url VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  position BIGINT NOT NULL COMMENT 'of the last event that it has',
  replays BIGINT NOT NULL DEFAULT 0 COMMENT 'what was under way before one does not count',
  delivered BIGINT NOT NULL DEFAULT 0 COMMENT 'repetitions too',
  failures BIGINT NOT NULL DEFAULT 0 COMMENT 'in a row',
  stopped BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'until somebody restarts it',
  last_answer VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL DEFAULT '',
  answered_at DATETIME(6) NULL COMMENT 'UTC',
  next_at DATETIME(6) NULL COMMENT 'UTC; NULL: at once',
  PRIMARY KEY (url)
) ENGINE = InnoDB;
INSERT INTO event_receivers (url, position)
SELECT '', 0 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM event_receivers);

-- What attempts to buy a voucher were answered, as each process of the service has counted them since it began.
CREATE TABLE IF NOT EXISTS answers (
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  process VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'another one after each start',
  first_at DATETIME(6) NOT NULL COMMENT 'UTC, on its clock, as latest_at',
  latest_at DATETIME(6) NOT NULL COMMENT 'UTC',
  by_code TEXT CHARACTER SET utf8mb4 NOT NULL COMMENT 'JSON: attempts by OK or the code of the problem',
  PRIMARY KEY (voucher_id, process)
) ENGINE = InnoDB;

-- Who waits for a unit of a voucher, in the order of place.
CREATE TABLE IF NOT EXISTS waitlist (
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  place BIGINT NOT NULL,
  user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  joined_at DATETIME(6) NOT NULL COMMENT 'UTC',
  payment_window BIGINT NOT NULL COMMENT 'nanoseconds, of the order that is made',
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'that the place became',
  waits TINYINT GENERATED ALWAYS AS (CASE WHEN order_id IS NULL THEN 1 ELSE NULL END) STORED,
  PRIMARY KEY (voucher_id, place),
  UNIQUE KEY waitlist_one_place (voucher_id, user_id, waits)
) ENGINE = InnoDB;

-- Draws: who enters during the window, the secret, how far the drawing is, and the drawn order. A voucher without a draw has
-- no row in these tables.
CREATE TABLE IF NOT EXISTS draws (
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  secret BINARY(32) NOT NULL COMMENT 'published when all are served',
  entries BIGINT NOT NULL DEFAULT 0 COMMENT 'rows of draw_entries',
  closed_at DATETIME(6) NULL COMMENT 'UTC; nobody enters any more',
  root BINARY(32) NULL COMMENT 'of the closed list',
  position BIGINT NOT NULL DEFAULT 0 COMMENT 'rows of draw_places: so many are served',
  winners BIGINT NOT NULL DEFAULT 0 COMMENT 'of these, those who got an order',
  drawn_at DATETIME(6) NULL COMMENT 'UTC; all are served',
  beacon_value VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'empty: not known yet',
  beacon_at DATETIME(6) NULL COMMENT 'UTC; the value was entered',
  PRIMARY KEY (voucher_id),
  KEY draws_due (drawn_at, voucher_id)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS draw_entries (
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  nonce BINARY(16) NOT NULL,
  entered_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (voucher_id, user_id)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS draw_places (
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  place BIGINT NOT NULL COMMENT 'in the drawn order, from 1',
  user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  leaf BINARY(32) NOT NULL,
  PRIMARY KEY (voucher_id, place)
) ENGINE = InnoDB;
