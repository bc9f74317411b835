-- Takes the lock if it is free or its lease has run out, in one statement.
-- Carried out twice it changes nothing more. Assignments go from left to right
-- and see what was assigned before them, so owner and expires_at, on which the
-- decision rests, come last. An owner that gave the lock back is refused.
-- A token is greater than the one before and not below the database's clock in
-- microseconds, so it still grows after the row was swept.
-- A lease never ends after {latest}: see MySQLStore.
-- Parameters: name, owner, least token, lease µs,
--   owner, least token, owner, least token, owner, owner, owner, owner, lease µs.
INSERT INTO {table} (name, owner, holds, token, expires_at)
VALUES (?, ?, 1, GREATEST(?, CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)
ON DUPLICATE KEY UPDATE
  token = IF((owner = '' OR expires_at <= UTC_TIMESTAMP(6)) AND released <> ?,
             GREATEST(token + 1, ?, CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)),
             IF(owner = ?, GREATEST(token, ?), token)),
  holds = IF((owner = '' OR expires_at <= UTC_TIMESTAMP(6)) AND released <> ?, 1, holds),
  owner = IF((owner = '' OR expires_at <= UTC_TIMESTAMP(6)) AND released <> ?, ?, owner),
  expires_at = LEAST({latest}, IF(owner = ?, GREATEST(expires_at, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND), expires_at))
