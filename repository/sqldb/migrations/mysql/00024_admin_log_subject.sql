-- What was changed of one voucher, newest first. Repeatable, as 00006 is.
-- +goose Up
SET @indexes = (
  SELECT COUNT(*) FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'admin_log' AND index_name = 'admin_log_subject'
);
SET @change = IF(@indexes > 0, 'DO 0', 'ALTER TABLE admin_log ADD KEY admin_log_subject (subject, id)');
PREPARE alteration FROM @change;
EXECUTE alteration;
DEALLOCATE PREPARE alteration;
