-- What the database says about hot copies, to be followed by a condition.
SELECT id AS voucher_id, copy_epoch AS epoch, copy_open_epoch AS open_epoch, copy_barrier AS barrier,
       copy_progress_at AS progress, revision, NOW(6) AS read_at
FROM vouchers
