-- What an administrator may do. Empty, as an instance makes it that knows no levels: everything.
-- Repeatable, as 00006 is.
-- +goose Up
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'accounts' AND column_name = 'level'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE accounts
  ADD COLUMN level VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '''' COMMENT ''of an administrator; empty: admin''');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
