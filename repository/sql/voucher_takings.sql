-- What one voucher's orders cost together, by status.
-- Parameter: voucher id.
SELECT status, COUNT(*) AS orders, SUM(price) AS amount FROM orders WHERE voucher_id = ? GROUP BY status
