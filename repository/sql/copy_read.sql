-- What the database says about hot copies, to be followed by a condition.
SELECT vouchers.id AS voucher_id, copy_epoch AS epoch, copy_open_epoch AS open_epoch, copy_barrier AS barrier,
       copy_progress_at AS progress, revision, version, stock - remaining AS taken, NOW(6) AS read_at,
       state = 'published' AND COALESCE(early_begin_at, begin_at) <= NOW(6) AND end_at > NOW(6) AS on_sale,
       allocation = 'draw' AS draw
FROM vouchers
