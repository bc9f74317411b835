-- Where units of vouchers come back to, with the order mode, which is locked against changes,
-- and the clock. lost is not 0 when parts are lost.
-- Parameter: voucher ids.
SELECT id, shards, PARTS(lost) AS lost, ORDER_MODE AS mode, NOW(6) AS server_time
FROM vouchers
WHERE id IN ?
