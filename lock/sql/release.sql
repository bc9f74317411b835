-- Gives the lock back if the owner still has it. Parameters: owner, name, owner.
UPDATE {table}
SET owner = '', holds = 0, released = ?, expires_at = UTC_TIMESTAMP(6)
WHERE name = ? AND owner = ? AND expires_at > UTC_TIMESTAMP(6)
