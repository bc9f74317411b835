-- What a draw says of itself, if its row is there, and the rows that it should have.
-- Parameter: voucher id.
SELECT draws.voucher_id IS NOT NULL AS known, COALESCE(entries, 0) AS entries, COALESCE(position, 0) AS position, drawn_at,
       (SELECT COUNT(*) FROM draw_entries WHERE draw_entries.voucher_id = vouchers.id) AS entered,
       (SELECT COUNT(*) FROM draw_places WHERE draw_places.voucher_id = vouchers.id) AS places
FROM vouchers
LEFT JOIN draws ON draws.voucher_id = vouchers.id
WHERE vouchers.id = ?
