-- Answers given under an Idempotency-Key, written in the transaction of the
-- change itself. scope and key are binary: no collation pads or folds them.
-- +goose Up
CREATE TABLE IF NOT EXISTS idempotency_keys (
  scope VARBINARY(255) NOT NULL COMMENT 'who calls what',
  idempotency_key VARBINARY(255) NOT NULL,
  fingerprint VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'hash of what was asked',
  answer MEDIUMTEXT NOT NULL COMMENT 'JSON',
  created_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (scope, idempotency_key),
  KEY idempotency_keys_oldest (created_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
