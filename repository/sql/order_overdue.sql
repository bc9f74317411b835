-- Unpaid orders whose time has passed, those with a payment that was started and whose
-- end is not known, or those without. The second condition on expires_at is implied by
-- the third; it is what the index can use.
-- Parameters: expires_at, twice, and id of the last one of the page before; whether such
-- a payment is wanted; rows.
SELECT orders.id AS id, orders.voucher_id AS voucher_id, orders.expires_at AS expires_at, NOW(6) AS read_at
FROM orders
WHERE orders.status = 'unpaid' AND orders.expires_at <= NOW(6) AND orders.expires_at >= ?
  AND (orders.expires_at > ? OR orders.id > ?)
  AND EXISTS (SELECT 1 FROM payments WHERE payments.order_id = orders.id AND payments.status = 'started') = ?
ORDER BY orders.expires_at, orders.id
LIMIT ?
