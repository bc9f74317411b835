-- Locks of the users in lock mode mysql, in the layout of the lock package's
-- MySQL store (lock/sql/table.sql). Names and owners are bytes, compared byte
-- for byte; times are UTC by the database's clock. A row stays after its lock
-- was released, because it carries the token on; the store sweeps it later.
-- +goose Up
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
