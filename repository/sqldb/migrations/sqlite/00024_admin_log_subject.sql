-- What was changed of one voucher, newest first, as in MySQL.
-- +goose Up
CREATE INDEX IF NOT EXISTS admin_log_subject ON admin_log (subject, id);
