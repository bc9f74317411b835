-- Draws: who enters during the window, the secret, how far the drawing is, and the drawn order. A voucher without a draw has
-- no row in these tables. Repeatable, as 00006 is.
-- +goose Up
CREATE TABLE IF NOT EXISTS draws (
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  secret BINARY(32) NOT NULL COMMENT 'published when all are served',
  entries BIGINT NOT NULL DEFAULT 0 COMMENT 'rows of draw_entries',
  closed_at DATETIME(6) NULL COMMENT 'UTC; nobody enters any more',
  root BINARY(32) NULL COMMENT 'of the closed list',
  position BIGINT NOT NULL DEFAULT 0 COMMENT 'rows of draw_places: so many are served',
  winners BIGINT NOT NULL DEFAULT 0 COMMENT 'of these, those who got an order',
  drawn_at DATETIME(6) NULL COMMENT 'UTC; all are served',
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
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND column_name = 'allocation'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE vouchers
  ADD COLUMN allocation VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '''' COMMENT ''empty: first come; draw''');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
