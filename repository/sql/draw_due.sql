-- Draws that are to be done: those that are closed and not done, and those whose sale is over. A paused or archived
-- voucher is not closed; what is closed goes on, whatever the voucher becomes. With a beacon it waits for the value once its
-- root is published.
SELECT draws.voucher_id AS voucher_id, secret, entries, closed_at, root, position, beacon, beacon_value,
       COALESCE(beacon_at, end_at) AS due_at, NOW(6) AS read_at
FROM draws JOIN vouchers ON vouchers.id = draws.voucher_id
WHERE drawn_at IS NULL AND allocation = 'draw'
  AND (closed_at IS NOT NULL OR (state = 'published' AND end_at <= NOW(6)))
  AND (beacon = '' OR beacon_value <> '' OR root IS NULL)
ORDER BY due_at, draws.voucher_id
