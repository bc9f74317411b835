-- The outbox of events for other systems: written in the transaction of the change, gone
-- once the stream has them. Empty while no stream is configured. The rows of one order
-- are in order, because its row is locked before each is written.
-- +goose Up
CREATE TABLE IF NOT EXISTS events (
  id BIGINT NOT NULL AUTO_INCREMENT,
  type VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subject VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'id of an order or a voucher',
  happened_at DATETIME(6) NOT NULL COMMENT 'UTC',
  data MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL COMMENT 'JSON',
  PRIMARY KEY (id)
) ENGINE = InnoDB;
