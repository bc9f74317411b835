-- The users whom somebody means: by how a username, or a user's or an order's id begins, among the newest by any part of it; by a
-- payment, its reference, or a code. Each part ends after some rows of an index, or after so many of the newest.
-- Parameters: part of an id, its end in the order of ids, and it in a pattern, of lower case too; the words; the hash of a code.
SELECT found.user_id AS id, COALESCE(username, '') AS username
FROM (SELECT user_id FROM (SELECT id AS user_id FROM accounts WHERE username_key >= LOWER(@part) AND username_key < LOWER(@end) LIMIT 20) AS a
      UNION SELECT user_id FROM (SELECT id AS user_id FROM accounts WHERE id >= @part AND id < @end LIMIT 20) AS b
      UNION SELECT user_id FROM (SELECT user_id FROM orders WHERE user_id >= @part AND user_id < @end LIMIT 20) AS c
      UNION SELECT user_id FROM (SELECT user_id FROM orders WHERE id >= @part AND id < @end LIMIT 20) AS d
      UNION SELECT id FROM (SELECT id, username_key FROM accounts ORDER BY id DESC LIMIT 10000) AS e
            WHERE username_key LIKE @lower ESCAPE '!' OR id LIKE @like ESCAPE '!'
      UNION SELECT user_id FROM (SELECT id, user_id FROM orders ORDER BY id DESC LIMIT 10000) AS f
            WHERE user_id LIKE @like ESCAPE '!' OR id LIKE @like ESCAPE '!'
      UNION SELECT user_id FROM orders WHERE id IN (SELECT order_id FROM payments WHERE reference <> '' AND reference = @words)
      UNION SELECT user_id FROM orders WHERE id IN (SELECT order_id FROM payments WHERE id = @part)
      UNION SELECT user_id FROM orders WHERE id IN (SELECT order_id FROM order_codes WHERE code_hash = @code)) AS found
LEFT JOIN accounts ON accounts.id = found.user_id
ORDER BY username, id
LIMIT 20
