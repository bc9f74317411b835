-- Makes a lease last longer, or just so long. Parameters: whether it may be shortened,
-- lease µs, name, owner.
UPDATE {table}
SET expires_at = LEAST({latest}, GREATEST(IF(?, UTC_TIMESTAMP(6), expires_at), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND))
WHERE name = ? AND owner = ? AND expires_at > UTC_TIMESTAMP(6)
