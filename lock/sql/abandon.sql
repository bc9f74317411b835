-- Gives the lock back, or sees to it that the owner's request is refused if it
-- arrives later. Parameters: name, owner, owner, owner, owner, owner.
INSERT INTO {table} (name, owner, holds, token, expires_at, released)
VALUES (?, '', 0, CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED), UTC_TIMESTAMP(6), ?)
ON DUPLICATE KEY UPDATE
  released = ?,
  holds = IF(owner = ?, 0, holds),
  expires_at = IF(owner = ?, UTC_TIMESTAMP(6), expires_at),
  owner = IF(owner = ?, '', owner)
