-- Indexes of the lists of vouchers, as in MySQL; a column that is added can only be
-- virtual.
-- +goose Up
ALTER TABLE vouchers ADD COLUMN sold_out INTEGER
  GENERATED ALWAYS AS (CASE WHEN remaining = 0 AND state <> 'paused' THEN 1 ELSE 0 END) VIRTUAL;
DROP INDEX vouchers_newest;
CREATE INDEX vouchers_newest ON vouchers (created_at, id, state, sold_out, begin_at, end_at);
CREATE INDEX vouchers_state ON vouchers (state, sold_out, created_at, id, begin_at, end_at);
