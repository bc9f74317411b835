-- The rate limits that an administrator has set, as in MySQL.
-- +goose Up
CREATE TABLE IF NOT EXISTS rate_limits (
  id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  user_rate TEXT NULL,
  addr_rate TEXT NULL
);
INSERT OR IGNORE INTO rate_limits (id) VALUES (1);
