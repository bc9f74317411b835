-- Where units of vouchers come back to, with the order mode, which is locked against changes,
-- and the clock. parts is less than shards when some are lost.
-- Parameter: voucher ids.
SELECT id, shards, 1 + PARTS(fit) AS parts, ORDER_MODE AS mode, NOW(6) AS server_time
FROM vouchers
WHERE id IN ?
