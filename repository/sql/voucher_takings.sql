-- What one voucher's orders cost together, by status, and how many units are taken from its stock, from one snapshot
-- because it is one statement. One row with a NULL status when there are no orders; none when there is no such voucher.
-- Parameter: voucher id.
SELECT orders.status AS status, COUNT(orders.id) AS orders, COALESCE(SUM(orders.price), 0) AS amount, voucher.taken AS taken
FROM (SELECT id, stock - remaining AS taken FROM vouchers WHERE id = ?) AS voucher
LEFT JOIN orders ON orders.voucher_id = voucher.id
GROUP BY voucher.taken, orders.status
