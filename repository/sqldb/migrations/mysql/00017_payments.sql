-- Money. A payment is stored before the provider hears of it; its id is the key under
-- which the provider starts it once. A refund gives the whole of one payment back, so
-- that one payment has one refund at the most; its id is the provider's key too.
-- next_at is when the provider is asked, or the refund is tried, next.
-- A webhook's message is stored in the transaction that applies it.
-- +goose Up
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
  PRIMARY KEY (id),
  KEY payments_order (order_id, status),
  KEY payments_next (next_at)
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
  KEY refunds_next (next_at)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS webhook_messages (
  id VARBINARY(255) NOT NULL,
  digest BINARY(32) NOT NULL COMMENT 'SHA-256 of the body',
  refusal VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL DEFAULT '' COMMENT 'why it was not applied',
  received_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY webhook_messages_oldest (received_at)
) ENGINE = InnoDB;
