-- Money that moves at the provider: how much of a payment went back, and whether its buyer disputes it.
-- The ALTER only adds columns at the end, which no server copies a table for. Repeatable, as 00006 is.
-- +goose Up
SET @columns = (
  SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'payments' AND column_name = 'refunded'
);
SET @change = IF(@columns > 0, 'DO 0', 'ALTER TABLE payments
  ADD COLUMN refunded BIGINT NOT NULL DEFAULT 0 COMMENT ''minor units, of the amount'',
  ADD COLUMN disputed BOOLEAN NOT NULL DEFAULT FALSE COMMENT ''the code of its order rests''');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
