-- What a draw says of itself, up to which place it and the waitlist have served, and the orders that were made since it was closed.
-- None when there is no such draw.
-- Parameter: voucher id.
SELECT draws.entries AS entries, draws.winners AS winners, drawn_at, draws.winners + vouchers.places_served AS served,
       (SELECT COUNT(*) FROM orders WHERE orders.voucher_id = draws.voucher_id AND orders.created_at >= draws.closed_at) AS made
FROM draws JOIN vouchers ON vouchers.id = draws.voucher_id
WHERE draws.voucher_id = ? AND allocation = 'draw'
