-- Says which is the last message that counts for the hot copy that was closed.
-- Who has read the voucher before must read it again: the revision grows.
-- Parameters: sequence; voucher id; the epoch being built.
-- Result: 1 row matched = stored; 0 = it is open already, or superseded.
UPDATE vouchers
SET copy_barrier = ?, copy_progress_at = NOW(6), revision = revision + 1, version = version + 1
WHERE id = ? AND copy_epoch = ? AND copy_open_epoch <> copy_epoch
