-- One voucher's units, its live orders, who waits and how the database is sold from, from one snapshot
-- because it is one statement. None when there is no such voucher. slot is counted from the index orders_one_live,
-- without a row or a group for each order: an administrator waits for it.
-- Parameter: voucher id.
SELECT stock, remaining,
       (SELECT COUNT(slot) FROM orders WHERE voucher_id = vouchers.id) AS live_orders, waiting,
       (SELECT COUNT(*) FROM waitlist WHERE voucher_id = vouchers.id AND place > vouchers.places_served) AS places_waiting,
       (SELECT mode FROM order_mode WHERE id = 1) AS mode, allocation = 'draw' AS draw
FROM vouchers
WHERE id = ?
