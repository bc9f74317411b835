-- Who of some users waits, or has waited, before another order of a voucher: until when, and how often before.
-- Parameters: voucher id; user ids.
SELECT user_id, MAX(cooldown_until) AS ends_at, COUNT(*) AS times
FROM orders
WHERE voucher_id = ? AND user_id IN ? AND cooldown_until IS NOT NULL
GROUP BY user_id
