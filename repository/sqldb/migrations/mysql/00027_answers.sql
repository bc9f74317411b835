-- What attempts to buy a voucher heard, as each process of the service has counted them since it began.
-- +goose Up
CREATE TABLE IF NOT EXISTS answers (
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  process VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'another one after each start',
  first_at DATETIME(6) NOT NULL COMMENT 'UTC, on its clock, as latest_at',
  latest_at DATETIME(6) NOT NULL COMMENT 'UTC',
  by_code TEXT CHARACTER SET utf8mb4 NOT NULL COMMENT 'JSON: attempts by OK or the code of the problem',
  PRIMARY KEY (voucher_id, process)
) ENGINE = InnoDB;
