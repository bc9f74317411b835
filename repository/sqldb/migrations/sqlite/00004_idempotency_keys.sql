-- Answers given under an Idempotency-Key, as in MySQL.
-- +goose Up
CREATE TABLE IF NOT EXISTS idempotency_keys (
  scope BLOB NOT NULL,
  idempotency_key BLOB NOT NULL,
  fingerprint TEXT NOT NULL,
  answer TEXT NOT NULL,
  created_at DATETIME NOT NULL,
  PRIMARY KEY (scope, idempotency_key)
);
CREATE INDEX IF NOT EXISTS idempotency_keys_oldest ON idempotency_keys (created_at);
