-- One page of a voucher's live orders, by user.
-- Parameters: voucher id; the last user of the page before; rows.
SELECT id, user_id
FROM orders FORCE INDEX (orders_one_live)
WHERE voucher_id = ? AND user_id > ? AND slot = 1
ORDER BY user_id
LIMIT ?
