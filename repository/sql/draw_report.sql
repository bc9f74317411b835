-- Whether a draw was kept to: every order that was made since it was closed is of the first places, up to the last one that
-- the waitlist has served, and none was made before that of an earlier place. Nobody beyond them needs to be read.
-- Parameters: voucher id, twice.
SELECT draws.entries AS entries, draws.winners AS winners, drawn_at,
       (SELECT COUNT(*) FROM orders WHERE orders.voucher_id = draws.voucher_id AND orders.created_at >= draws.closed_at) AS made,
       (SELECT COUNT(*) FROM draw_places JOIN orders ON orders.voucher_id = draw_places.voucher_id AND orders.user_id = draw_places.user_id
        WHERE draw_places.voucher_id = draws.voucher_id AND draw_places.place <= draws.winners + vouchers.places_served
          AND orders.created_at >= draws.closed_at) AS of_the_first,
       (SELECT COUNT(*) FROM (
          SELECT draw_places.voucher_id AS voucher_id, draw_places.place AS place,
                 MAX(draw_places.place) OVER (PARTITION BY draw_places.voucher_id ORDER BY orders.created_at, draw_places.place
                   ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS farthest
          FROM draw_places JOIN orders ON orders.voucher_id = draw_places.voucher_id AND orders.user_id = draw_places.user_id
          JOIN draws AS kept ON kept.voucher_id = draw_places.voucher_id JOIN vouchers AS sold ON sold.id = draw_places.voucher_id
          WHERE draw_places.voucher_id = ? AND draw_places.place <= kept.winners + sold.places_served AND orders.created_at >= kept.closed_at
        ) AS served WHERE served.place < served.farthest) AS overtaken
FROM draws JOIN vouchers ON vouchers.id = draws.voucher_id
WHERE draws.voucher_id = ? AND allocation = 'draw'
