-- What ends the tokens of an account, as in MySQL.
-- +goose Up
ALTER TABLE accounts ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE accounts ADD COLUMN disabled BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE accounts ADD COLUMN changed_at DATETIME NULL;
CREATE INDEX accounts_changed ON accounts (changed_at);
