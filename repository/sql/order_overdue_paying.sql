-- Unpaid orders whose time has passed, with a payment that was started and whose end is not known. Those payments are few, and
-- so they are read first.
-- Parameters: expires_at, twice, and id of the last one of the page before; rows.
SELECT DISTINCT orders.id AS id, orders.voucher_id AS voucher_id, orders.expires_at AS expires_at, NOW(6) AS read_at,
  COALESCE(orders.unpaid_at, orders.created_at) AS unpaid_since
FROM payments FORCE INDEX (payments_decided) JOIN orders ON orders.id = payments.order_id
WHERE payments.status = 'started' AND orders.status = 'unpaid' AND orders.expires_at <= NOW(6) AND orders.expires_at >= ?
  AND (orders.expires_at > ? OR orders.id > ?)
ORDER BY expires_at, id
LIMIT ?
