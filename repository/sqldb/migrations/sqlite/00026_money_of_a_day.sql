-- What was received and returned since an instant, as in MySQL.
-- +goose Up
CREATE INDEX IF NOT EXISTS payments_decided ON payments (status, decided_at, amount);
CREATE INDEX IF NOT EXISTS refunds_closed ON refunds (status, closed_at, amount);
