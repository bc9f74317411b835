-- Deletes rows that were not used for long. Parameters: age µs, how many.
DELETE FROM {table} WHERE expires_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND LIMIT ?
