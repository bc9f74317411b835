-- Cancels unpaid orders.
-- Parameter: ids.
-- Result: as many rows matched as ids = canceled; fewer = one has changed since it was read.
UPDATE orders
SET status = 'canceled', closed_at = NOW(6)
WHERE id IN ? AND status = 'unpaid'
