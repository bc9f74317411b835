-- A stock that is about to shrink: the hot copy is lowered first, and if the
-- process dies in between, this row tells that the copy must be put right.
-- +goose Up
CREATE TABLE IF NOT EXISTS stock_intents (
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  stock BIGINT NOT NULL COMMENT 'units ever offered, as intended',
  revision BIGINT NOT NULL COMMENT 'of the voucher when it was intended',
  created_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (voucher_id)
) ENGINE = InnoDB;
