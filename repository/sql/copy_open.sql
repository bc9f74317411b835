-- Declares a hot copy open. The revision stays: the copy was loaded with it.
-- Parameters: voucher id; the epoch that was built.
-- Result: 1 row matched = open; 0 = it is open already, superseded, or of a draw.
UPDATE vouchers
SET copy_open_epoch = copy_epoch, copy_barrier = NULL, version = version + 1
WHERE id = ? AND copy_epoch = ? AND copy_open_epoch <> copy_epoch AND allocation = ''
