-- One voucher's units and its orders by status, from one snapshot because it is
-- one statement. One row with a NULL status when there are no orders; none when there
-- is no such voucher. Live orders are told by their status, as slot is: an index has
-- that, and the rows need not be read.
-- Parameter: voucher id.
SELECT voucher.stock AS stock, voucher.remaining AS remaining, orders.status AS status,
       COUNT(orders.id) AS orders,
       COUNT(CASE WHEN orders.status IN ('unpaid', 'paid', 'redeemed') THEN 1 END) AS live
FROM (SELECT id, stock, remaining FROM vouchers WHERE id = ?) AS voucher
LEFT JOIN orders ON orders.voucher_id = voucher.id
GROUP BY voucher.stock, voucher.remaining, orders.status
