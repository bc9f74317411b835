-- What an administrator may do, as in MySQL.
-- +goose Up
ALTER TABLE accounts ADD COLUMN level TEXT NOT NULL DEFAULT '';
