-- Sets the hold count of an owner that has the lock, and does not shorten its lease.
-- Parameters: holds, lease µs, name, owner.
UPDATE {table}
SET holds = ?, expires_at = LEAST({latest}, GREATEST(expires_at, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND))
WHERE name = ? AND owner = ? AND expires_at > UTC_TIMESTAMP(6)
