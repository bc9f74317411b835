-- Frees the lock whoever has it. Parameter: name.
UPDATE {table}
SET owner = '', holds = 0, expires_at = UTC_TIMESTAMP(6)
WHERE name = ? AND owner <> '' AND expires_at > UTC_TIMESTAMP(6)
