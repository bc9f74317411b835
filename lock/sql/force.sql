-- Frees the lock, whichever owner has it, under the name of the request, by which a
-- repetition knows what it did. Parameters: request, name.
UPDATE {table}
SET owner = '', holds = 0, released = ?, expires_at = UTC_TIMESTAMP(6)
WHERE name = ? AND owner <> '' AND expires_at > UTC_TIMESTAMP(6)
