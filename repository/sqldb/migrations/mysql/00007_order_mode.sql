-- How this database is sold from: one row. Who takes units keeps it locked
-- (shared) from reading the voucher to COMMIT. switching_to is set while the mode
-- is being changed. deployment names this database towards queues that several
-- deployments may share.
-- +goose Up
CREATE TABLE IF NOT EXISTS order_mode (
  id TINYINT NOT NULL,
  mode VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  switching_to VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  deployment VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT order_mode_is_one_row CHECK (id = 1)
) ENGINE = InnoDB;
INSERT INTO order_mode (id, mode, deployment)
SELECT 1, 'sync', SUBSTRING(REPLACE(UUID(), '-', ''), 1, 16) FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM order_mode);
