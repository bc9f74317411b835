-- A sign of life of who builds a hot copy. It changes nothing of the voucher, so
-- no version grows.
-- Parameters: voucher id; the epoch being built.
-- Result: 1 row matched = heard; 0 = it is open already, or superseded.
UPDATE vouchers
SET copy_progress_at = NOW(6)
WHERE id = ? AND copy_epoch = ? AND copy_open_epoch <> copy_epoch
