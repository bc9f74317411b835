-- A user's entry and what became of it, from one snapshot because it is one statement.
-- Parameters: voucher id; user id.
SELECT nonce, entered_at,
       (SELECT drawn_at FROM draws WHERE draws.voucher_id = draw_entries.voucher_id) AS drawn_at,
       (SELECT id FROM orders
        WHERE orders.voucher_id = draw_entries.voucher_id AND orders.user_id = draw_entries.user_id
        ORDER BY created_at DESC, id DESC LIMIT 1) AS order_id,
       (SELECT place FROM waitlist
        WHERE waitlist.voucher_id = draw_entries.voucher_id AND waitlist.user_id = draw_entries.user_id AND waits = 1) AS place
FROM draw_entries
WHERE voucher_id = ? AND user_id = ?
