-- One page of the users who wait before another order of a voucher, and until when.
-- Parameters: voucher id; the last user of the page before; rows.
SELECT user_id, MAX(cooldown_until) AS ends_at
FROM orders FORCE INDEX (orders_one_live)
WHERE voucher_id = ? AND user_id > ? AND slot IS NULL AND cooldown_until > NOW(6)
GROUP BY user_id
ORDER BY user_id
LIMIT ?
