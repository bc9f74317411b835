-- The later life of orders. A redeemed order holds its unit, so that slot is made anew:
-- MariaDB and MySQL copy the table for that, while it can be read and not written.
-- Everything else that orders need is in the same ALTER, which copies once and happens
-- wholly or not at all. Repeatable, as 00006 is.
-- sealed_code is what its owner is shown; order_codes finds an order by the keyed hash
-- of its code. That is a table of its own because an index of orders has an entry for
-- every order, also for one without a code. orders_due finds what is to expire; its new
-- entries go behind those of the other unpaid orders, so that one page takes them all.
-- payment_window stands on the voucher, and expires_at of its orders is made of it.
-- +goose Up
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'orders' AND column_name = 'sealed_code'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE orders
  MODIFY COLUMN slot TINYINT GENERATED ALWAYS AS (CASE WHEN status = ''unpaid'' OR status = ''paid'' OR status = ''redeemed'' THEN 1 ELSE NULL END) STORED,
  ADD COLUMN redeemed_at DATETIME(6) NULL COMMENT ''UTC'',
  ADD COLUMN sealed_code VARBINARY(255) NULL COMMENT ''what the buyer shows, encrypted'',
  ADD KEY orders_due (status, expires_at)');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND column_name = 'payment_window'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE vouchers
  ADD COLUMN payment_window BIGINT NOT NULL DEFAULT 0 COMMENT ''nanoseconds; 0: that of the settings''');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
CREATE TABLE IF NOT EXISTS order_codes (
  code_hash BINARY(32) NOT NULL COMMENT 'HMAC-SHA-256',
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (code_hash)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS order_history (
  id BIGINT NOT NULL AUTO_INCREMENT,
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  moved_at DATETIME(6) NOT NULL COMMENT 'UTC',
  from_status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  to_status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  actor VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'a user, system or provider',
  reason VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  PRIMARY KEY (id),
  KEY order_history_order (order_id, id)
) ENGINE = InnoDB;
