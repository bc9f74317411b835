-- Unpaid orders whose time has passed, without a payment that was started and whose
-- end is not known. The second condition on expires_at is implied by
-- the third; it is what the index can use. By their status the started payments would be read for each order.
-- Parameters: expires_at, twice, and id of the last one of the page before; rows.
SELECT orders.id AS id, orders.voucher_id AS voucher_id, orders.expires_at AS expires_at, NOW(6) AS read_at,
  COALESCE(orders.unpaid_at, orders.created_at) AS unpaid_since
FROM orders FORCE INDEX (orders_due)
WHERE orders.status = 'unpaid' AND orders.expires_at <= NOW(6) AND orders.expires_at >= ?
  AND (orders.expires_at > ? OR orders.id > ?)
  AND NOT EXISTS (SELECT 1 FROM payments FORCE INDEX (payments_order) WHERE payments.order_id = orders.id AND payments.status = 'started')
ORDER BY orders.expires_at, orders.id
LIMIT ?
