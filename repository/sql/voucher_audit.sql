-- One voucher's units, its live orders and how the database is sold from, from one snapshot
-- because it is one statement. None when there is no such voucher. slot is counted from the index orders_one_live,
-- without a row or a group for each order: an administrator waits for it.
-- Parameter: voucher id.
SELECT stock, remaining,
       (SELECT COUNT(slot) FROM orders WHERE voucher_id = vouchers.id) AS live_orders,
       (SELECT mode FROM order_mode WHERE id = 1) AS mode
FROM vouchers
WHERE id = ?
