-- What a draw says of itself, and the rows that it should have.
-- Parameter: voucher id.
SELECT entries, position, drawn_at,
       (SELECT COUNT(*) FROM draw_entries WHERE draw_entries.voucher_id = draws.voucher_id) AS entered,
       (SELECT COUNT(*) FROM draw_places WHERE draw_places.voucher_id = draws.voucher_id) AS places
FROM draws
WHERE voucher_id = ?
