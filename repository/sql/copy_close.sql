-- Begins the next epoch of a hot copy, which is not open yet: the messages of
-- the open one count until a barrier says up to which.
-- Parameters: voucher id; the epoch it follows.
-- Result: 1 row matched = closed; 0 = somebody else was first.
UPDATE vouchers
SET copy_epoch = copy_epoch + 1, copy_barrier = NULL, copy_progress_at = NOW(6),
    revision = revision + 1, version = version + 1
WHERE id = ? AND copy_epoch = ?
