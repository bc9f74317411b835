-- How this database is sold from, as in MySQL.
-- +goose Up
CREATE TABLE IF NOT EXISTS order_mode (
  id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  mode TEXT NOT NULL,
  switching_to TEXT NOT NULL DEFAULT '',
  deployment TEXT NOT NULL
);
INSERT OR IGNORE INTO order_mode (id, mode, deployment) VALUES (1, 'sync', lower(hex(randomblob(8))));
