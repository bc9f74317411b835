-- What the reconciler and readiness look at again and again: which vouchers are
-- about to be sold, what came back of one voucher, and which Redis sells this
-- database: one row, renewed while it does. Repeatable, as 00006 is.
-- +goose Up
SET @indexes = (
  SELECT COUNT(*) FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND index_name = 'vouchers_window'
);
SET @change = IF(@indexes > 0, 'DO 0', 'ALTER TABLE vouchers ADD KEY vouchers_window (end_at, begin_at)');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @indexes = (
  SELECT COUNT(*) FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'releases' AND index_name = 'releases_voucher'
);
SET @change = IF(@indexes > 0, 'DO 0', 'ALTER TABLE releases ADD KEY releases_voucher (voucher_id, id)');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
CREATE TABLE IF NOT EXISTS redis_claim (
  id TINYINT NOT NULL,
  identity VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'empty: none yet',
  renewed_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  CONSTRAINT redis_claim_is_one_row CHECK (id = 1)
) ENGINE = InnoDB;
INSERT INTO redis_claim (id, identity, renewed_at)
SELECT 1, '', UTC_TIMESTAMP(6) FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM redis_claim);
