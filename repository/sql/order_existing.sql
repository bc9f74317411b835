-- What there is already of a batch for one voucher: rows by id, whatever became
-- of them, and the live rows of its users. A row may come twice.
-- Parameters: ids; voucher id; user ids.
SELECT id, voucher_id, user_id, status, reason, price, currency, created_at, expires_at, paid_at, redeemed_at, closed_at, unpaid_at, cooldown_until, sealed_code
FROM orders
WHERE id IN ?
UNION ALL
SELECT id, voucher_id, user_id, status, reason, price, currency, created_at, expires_at, paid_at, redeemed_at, closed_at, unpaid_at, cooldown_until, sealed_code
FROM orders
WHERE voucher_id = ? AND user_id IN ? AND slot = 1
