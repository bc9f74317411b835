-- The outbox of units that came back: written in the transaction that gives the
-- unit back, gone once the voucher's hot copy knows.
-- +goose Up
CREATE TABLE IF NOT EXISTS releases (
  id BIGINT NOT NULL AUTO_INCREMENT,
  order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  voucher_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (id),
  KEY releases_order (order_id)
) ENGINE = InnoDB;
