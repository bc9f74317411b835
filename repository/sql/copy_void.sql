-- Begins the next epoch of a hot copy, which nobody is building yet: from here on no order of the open one is promised, and whoever looks rebuilds it.
-- Parameter: voucher id.
-- Result: 1 row matched = closed; 0 = it never had one.
UPDATE vouchers
SET copy_epoch = copy_epoch + 1, copy_barrier = NULL, copy_progress_at = NULL,
    revision = revision + 1, version = version + 1
WHERE id = ? AND copy_epoch > 0
