-- The newest orders of a status, as in MySQL.
-- +goose Up
CREATE INDEX IF NOT EXISTS orders_newest ON orders (status, created_at, id);
