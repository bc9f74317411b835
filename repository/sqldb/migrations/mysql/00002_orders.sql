-- Orders. slot is 1 while an order holds a unit and NULL once it is closed, so
-- that the unique key allows one live order of a user for a voucher and any
-- number of closed ones. Rows are never deleted: a repeated message may name them.
-- orders_newest_of_voucher ends in status to count a voucher's orders by status
-- from the index alone.
-- +goose Up
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
  slot TINYINT GENERATED ALWAYS AS (CASE WHEN status = 'unpaid' OR status = 'paid' THEN 1 ELSE NULL END) STORED,
  PRIMARY KEY (id),
  UNIQUE KEY orders_one_live (voucher_id, user_id, slot),
  KEY orders_newest_of_user (user_id, created_at, id),
  KEY orders_newest_of_voucher (voucher_id, created_at, id, status)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
