-- The orders of places of a draw that were made since it was closed, in the order of the places.
-- Parameters: voucher id; the last place of the page before, and of this one.
SELECT FALSE AS waits, draw_places.place, orders.created_at AS made_at
FROM draw_places JOIN draws ON draws.voucher_id = draw_places.voucher_id
JOIN orders ON orders.voucher_id = draw_places.voucher_id AND orders.user_id = draw_places.user_id AND orders.created_at >= draws.closed_at
WHERE draw_places.voucher_id = ? AND draw_places.place > ? AND draw_places.place <= ?
ORDER BY draw_places.place, orders.created_at
