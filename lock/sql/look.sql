-- Who has the lock. Parameter: name.
SELECT owner, token, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at), released
FROM {table} WHERE name = ?
