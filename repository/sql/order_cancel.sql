-- Cancels an unpaid order.
-- Parameters: id; user id.
-- Result: 1 row matched = canceled; 0 = it has changed since it was read.
UPDATE orders
SET status = 'canceled', closed_at = NOW(6)
WHERE id = ? AND user_id = ? AND status = 'unpaid'
