-- Vouchers that are sold in parts, as in MySQL. SQLite cannot change a generated column:
-- sold_out is made anew, with the indexes that have it.
-- +goose Up
ALTER TABLE vouchers ADD COLUMN shards INTEGER NOT NULL DEFAULT 1;
DROP INDEX vouchers_newest;
DROP INDEX vouchers_state;
ALTER TABLE vouchers DROP COLUMN sold_out;
ALTER TABLE vouchers ADD COLUMN sold_out INTEGER GENERATED ALWAYS AS
  (CASE WHEN state = 'paused' THEN 0 WHEN shards > 1 THEN 2 WHEN remaining = 0 THEN 1 ELSE 0 END) VIRTUAL;
CREATE INDEX vouchers_newest ON vouchers (created_at, id, state, sold_out, begin_at, end_at);
CREATE INDEX vouchers_state ON vouchers (state, sold_out, created_at, id, begin_at, end_at);
CREATE TABLE voucher_stock (
  voucher_id TEXT NOT NULL,
  shard INTEGER NOT NULL,
  remaining INTEGER NOT NULL,
  version INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  PRIMARY KEY (voucher_id, shard),
  CONSTRAINT voucher_stock_remaining_not_negative CHECK (remaining >= 0)
);
