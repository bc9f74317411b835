-- Gives the parts of a voucher the revision of its row, which is locked: a sale that has
-- read one before must read again.
-- Parameters: voucher id, twice.
UPDATE voucher_stock
SET revision = (SELECT revision FROM vouchers WHERE id = ?)
WHERE voucher_id = ?
