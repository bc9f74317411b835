-- Who waits for a unit of a voucher, in the order of place. A voucher's waiting is how many do, places is the last place that was
-- given, and places_served the last one that became an order: the places behind it wait. While anybody waits nothing remains for
-- the open sale: the row itself refuses it. A release names the order that got the unit.
-- Each ALTER happens wholly or not at all. Repeatable, as 00006 is.
-- +goose Up
CREATE TABLE IF NOT EXISTS waitlist (
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  place BIGINT NOT NULL,
  user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  joined_at DATETIME(6) NOT NULL COMMENT 'UTC',
  payment_window BIGINT NOT NULL COMMENT 'nanoseconds, of the order that is made',
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'that the place became',
  waits TINYINT GENERATED ALWAYS AS (CASE WHEN order_id IS NULL THEN 1 ELSE NULL END) STORED,
  PRIMARY KEY (voucher_id, place),
  UNIQUE KEY waitlist_one_place (voucher_id, user_id, waits)
) ENGINE = InnoDB;
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND column_name = 'waiting'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE vouchers
  ADD COLUMN waitlist BOOLEAN NOT NULL DEFAULT FALSE,
  ADD COLUMN waiting BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN places BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN places_served BIGINT NOT NULL DEFAULT 0,
  ADD CONSTRAINT vouchers_waiting_before_sale CHECK (waiting >= 0 AND (waiting = 0 OR remaining = 0))');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'releases' AND column_name = 'heir_id'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE releases
  ADD COLUMN heir_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT ''the order that got the unit'',
  ADD COLUMN heir_user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
