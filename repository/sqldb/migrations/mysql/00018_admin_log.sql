-- What administrators changed, written in the transaction of the change.
-- was and became are the members before and after: SQL uses those words itself.
-- +goose Up
CREATE TABLE IF NOT EXISTS admin_log (
  id BIGINT NOT NULL AUTO_INCREMENT,
  changed_at DATETIME(6) NOT NULL COMMENT 'UTC',
  actor VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  action VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subject VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'id of a voucher or an order',
  was MEDIUMTEXT CHARACTER SET utf8mb4 NULL COMMENT 'JSON',
  became MEDIUMTEXT CHARACTER SET utf8mb4 NULL COMMENT 'JSON',
  PRIMARY KEY (id),
  KEY admin_log_actor (actor, id)
) ENGINE = InnoDB;
