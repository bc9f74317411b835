-- Makes a lease last longer, never shorter. Parameters: lease µs, name, owner.
UPDATE {table}
SET expires_at = GREATEST(expires_at, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)
WHERE name = ? AND owner = ? AND expires_at > UTC_TIMESTAMP(6)
