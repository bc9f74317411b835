-- The rate limits that an administrator has set, in the form of the settings; they
-- win over the settings of every instance. One row.
-- +goose Up
CREATE TABLE IF NOT EXISTS rate_limits (
  id TINYINT NOT NULL,
  user_rate VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'NULL: that of the settings',
  addr_rate VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'NULL: that of the settings',
  PRIMARY KEY (id),
  CONSTRAINT rate_limits_is_one_row CHECK (id = 1)
) ENGINE = InnoDB;
INSERT INTO rate_limits (id)
SELECT 1 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM rate_limits);
