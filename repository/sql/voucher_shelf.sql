-- The newest vouchers as a merchant sorts them: place is 0 live, 1 sold out, 2 paused, 3 upcoming, 4 draft, 5 ended, 6 archived.
-- Parameter: how many.
SELECT id, title, price, remaining, stock - remaining AS taken, begin_at, end_at,
       CASE WHEN state = 'archived' THEN 6 WHEN state = 'draft' THEN 4 WHEN end_at <= NOW(6) THEN 5
            WHEN state = 'paused' THEN 2 WHEN begin_at > NOW(6) THEN 3 WHEN sold_out = 1 THEN 1 ELSE 0 END AS place
FROM (SELECT * FROM vouchers FORCE INDEX (vouchers_newest) ORDER BY created_at DESC, id DESC LIMIT ?) AS newest
