-- A user's entries of draws, by voucher: no index finds a user's alone.
-- Parameter: user id.
SELECT draw_entries.voucher_id, user_id, nonce, entered_at
FROM draws
JOIN draw_entries ON draw_entries.voucher_id = draws.voucher_id AND user_id = ?
ORDER BY entered_at, draw_entries.voucher_id
