-- Who waits for a unit of a voucher, as in MySQL.
-- +goose Up
CREATE TABLE waitlist (
  voucher_id TEXT NOT NULL,
  place INTEGER NOT NULL,
  user_id TEXT NOT NULL,
  joined_at DATETIME NOT NULL,
  payment_window INTEGER NOT NULL,
  order_id TEXT NULL,
  waits INTEGER GENERATED ALWAYS AS (CASE WHEN order_id IS NULL THEN 1 ELSE NULL END) STORED,
  PRIMARY KEY (voucher_id, place)
);
CREATE UNIQUE INDEX waitlist_one_place ON waitlist (voucher_id, user_id, waits);
ALTER TABLE vouchers ADD COLUMN waitlist BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE vouchers ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0 AND (waiting = 0 OR remaining = 0));
ALTER TABLE vouchers ADD COLUMN places INTEGER NOT NULL DEFAULT 0;
ALTER TABLE vouchers ADD COLUMN places_served INTEGER NOT NULL DEFAULT 0;
ALTER TABLE releases ADD COLUMN heir_id TEXT NULL;
ALTER TABLE releases ADD COLUMN heir_user_id TEXT NULL;
