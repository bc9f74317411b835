-- One voucher's units and its orders by status, from one snapshot because it is
-- one statement, and how the database is sold from. One row with a NULL status
-- when there are no orders; none when there is no such voucher.
-- Parameter: voucher id.
SELECT vouchers.stock AS stock, vouchers.remaining AS remaining, orders.status AS status,
       COUNT(orders.id) AS orders, COUNT(orders.slot) AS live,
       (SELECT mode FROM order_mode WHERE id = 1) AS mode
FROM vouchers
LEFT JOIN orders ON orders.voucher_id = vouchers.id
WHERE vouchers.id = ?
GROUP BY vouchers.stock, vouchers.remaining, orders.status
