-- A user's places on waitlists, by voucher: no index finds a user's alone.
-- Parameter: user id.
SELECT waitlist.voucher_id, place AS position, joined_at, COALESCE(order_id, '') AS order_id
FROM vouchers
JOIN waitlist ON waitlist.voucher_id = vouchers.id AND waitlist.user_id = ?
WHERE vouchers.places > 0
ORDER BY joined_at, waitlist.voucher_id
