-- Money that moves at the provider, as in MySQL.
-- +goose Up
ALTER TABLE payments ADD COLUMN refunded INTEGER NOT NULL DEFAULT 0;
ALTER TABLE payments ADD COLUMN disputed BOOLEAN NOT NULL DEFAULT FALSE;
