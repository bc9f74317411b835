-- Vouchers that are sold in parts. The row in vouchers is part 0 with its remaining, and
-- voucher_stock has the others, 1 to shards - 1: what is left of a voucher is the sum.
-- revision is the voucher's, so that a sale from any part sees what administrators and
-- rebuilds have changed. The rows have no CHECK against the stock, which is another row's.
-- sold_out is 2 for a divided voucher, whose row cannot know it: lists add up its parts.
-- One ALTER: it happens wholly or not at all. Repeatable, as 00006 is.
-- +goose Up
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND column_name = 'shards'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE vouchers
  ADD COLUMN shards SMALLINT NOT NULL DEFAULT 1 COMMENT ''parts; those behind the first are in voucher_stock'',
  MODIFY COLUMN sold_out TINYINT GENERATED ALWAYS AS
    (CASE WHEN state = ''paused'' THEN 0 WHEN shards > 1 THEN 2 WHEN remaining = 0 THEN 1 ELSE 0 END) STORED');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
CREATE TABLE IF NOT EXISTS voucher_stock (
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  shard SMALLINT NOT NULL COMMENT 'from 1',
  remaining BIGINT NOT NULL COMMENT 'units left to take',
  version BIGINT NOT NULL COMMENT 'grows with every change of the row',
  revision BIGINT NOT NULL COMMENT 'that of the voucher',
  PRIMARY KEY (voucher_id, shard),
  CONSTRAINT voucher_stock_remaining_not_negative CHECK (remaining >= 0)
) ENGINE = InnoDB;
