-- Who waits for units, of all vouchers, and units that should be theirs: of unpaid orders whose time passed a while ago, and of
-- releases with an heir that no hot copy knows of.
-- Parameter: the instant up to which an order's time must have passed.
SELECT (SELECT COALESCE(SUM(waiting), 0) FROM vouchers FORCE INDEX (vouchers_waiting) WHERE waiting > 0) AS waiting,
       (SELECT COUNT(*) FROM orders FORCE INDEX (orders_due) JOIN vouchers ON vouchers.id = orders.voucher_id
        WHERE orders.status = 'unpaid' AND orders.expires_at <= ? AND vouchers.waiting > 0)
       + (SELECT COUNT(heir_id) FROM releases) AS held
