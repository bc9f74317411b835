-- What was received and returned since an instant, read from the index alone. Repeatable, as 00006 is.
-- +goose Up
SET @indexes = (
  SELECT COUNT(*) FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'payments' AND index_name = 'payments_decided'
);
SET @change = IF(@indexes > 0, 'DO 0', 'ALTER TABLE payments ADD KEY payments_decided (status, decided_at, amount)');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
SET @indexes = (
  SELECT COUNT(*) FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'refunds' AND index_name = 'refunds_closed'
);
SET @change = IF(@indexes > 0, 'DO 0', 'ALTER TABLE refunds ADD KEY refunds_closed (status, closed_at, amount)');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
