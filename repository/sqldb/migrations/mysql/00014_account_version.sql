-- What ends the tokens of an account: its version, whether it is disabled, and when
-- it was last changed. An instance that knows none of them still makes accounts: each
-- column has a default. Repeatable, as 00006 is.
-- +goose Up
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'accounts' AND column_name = 'version'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE accounts
  ADD COLUMN version BIGINT NOT NULL DEFAULT 1,
  ADD COLUMN disabled BOOLEAN NOT NULL DEFAULT FALSE,
  ADD COLUMN changed_at DATETIME(6) NULL COMMENT ''UTC, NULL is never'',
  ADD KEY accounts_changed (changed_at)');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
