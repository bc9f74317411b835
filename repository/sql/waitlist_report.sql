-- What a voucher says of its waitlist: how many places were given and wait, up to which they were served, and how many behind
-- that are orders all the same. None when there is no such voucher.
-- Parameter: voucher id.
SELECT places, waiting, places_served,
       (SELECT COUNT(order_id) FROM waitlist WHERE voucher_id = vouchers.id AND place > vouchers.places_served) AS ahead
FROM vouchers
WHERE id = ?
