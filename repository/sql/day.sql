-- What has come since an instant: orders that did not fail, money received, money returned. Each is read from an index.
-- Parameters: the instant, thrice.
SELECT
  (SELECT COUNT(*) FROM orders
   WHERE status IN ('unpaid', 'paid', 'redeemed', 'canceled', 'expired', 'refunded') AND created_at >= ?) AS orders,
  (SELECT COALESCE(SUM(amount), 0) FROM payments WHERE status = 'succeeded' AND decided_at >= ?) AS received,
  (SELECT COALESCE(SUM(amount), 0) FROM refunds WHERE status = 'done' AND closed_at >= ?) AS returned
