-- The places of one voucher's waitlist: how many were given, became orders, were left and wait, and how many of the orders were
-- made before that of an earlier place. None when there is no such voucher.
-- Parameters: voucher id, twice.
SELECT vouchers.places AS places, vouchers.waiting AS waiting, COUNT(found.order_id) AS served,
       vouchers.places - vouchers.waiting - COUNT(found.order_id) AS gone, COALESCE(SUM(found.overtaken), 0) AS overtaken
FROM vouchers
LEFT JOIN (
  SELECT waitlist.voucher_id AS voucher_id, waitlist.order_id AS order_id,
         CASE WHEN orders.created_at < MAX(orders.created_at) OVER (ORDER BY waitlist.place ROWS UNBOUNDED PRECEDING)
                OR MAX(waitlist.waits) OVER (ORDER BY waitlist.place ROWS UNBOUNDED PRECEDING) = 1 AND waitlist.waits IS NULL
              THEN 1 ELSE 0 END AS overtaken
  FROM waitlist LEFT JOIN orders ON orders.id = waitlist.order_id
  WHERE waitlist.voucher_id = ?
) AS found ON found.voucher_id = vouchers.id
WHERE vouchers.id = ?
GROUP BY vouchers.id, vouchers.places, vouchers.waiting
