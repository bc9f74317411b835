-- Accounts of those who log in here; a buyer needs none. username_key is the
-- username in lower case: unique without regard to case.
-- +goose Up
CREATE TABLE IF NOT EXISTS accounts (
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  username VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  username_key VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  role VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  password_hash VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'PHC string',
  created_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  UNIQUE KEY accounts_username (username_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
