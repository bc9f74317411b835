-- Vouchers: what is sold. The row is the stock, and every sale goes through it.
-- id and state are ascii_bin: compared byte for byte. IF NOT EXISTS, because DDL
-- commits by itself: a process that dies right after it must be able to repeat.
-- No table has foreign keys: each INSERT of an order would lock its voucher's
-- row shared, before the UPDATE locks it exclusively, and two such transactions
-- deadlock. Orders are written by one piece of code that has read the voucher,
-- and vouchers are never deleted.
-- +goose Up
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
  PRIMARY KEY (id),
  KEY vouchers_newest (created_at, id),
  CONSTRAINT vouchers_remaining_not_negative CHECK (remaining >= 0),
  CONSTRAINT vouchers_remaining_within_stock CHECK (remaining <= stock),
  CONSTRAINT vouchers_window_not_empty CHECK (begin_at < end_at),
  CONSTRAINT vouchers_money_not_negative CHECK (price >= 0 AND face_value >= 0)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
