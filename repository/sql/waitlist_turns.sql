-- What became of places of a waitlist, in their order. Those who left are not there any more.
-- Parameters: voucher id; the last place of the page before, and of this one.
SELECT waitlist.order_id IS NULL AS waits, waitlist.place, orders.created_at AS made_at
FROM waitlist LEFT JOIN orders ON orders.id = waitlist.order_id
WHERE waitlist.voucher_id = ? AND waitlist.place > ? AND waitlist.place <= ?
ORDER BY waitlist.place
