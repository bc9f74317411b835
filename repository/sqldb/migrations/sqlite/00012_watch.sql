-- What the reconciler looks at again and again, as in MySQL. Only one process
-- uses the file, so that there is no redis_claim.
-- +goose Up
CREATE INDEX IF NOT EXISTS vouchers_window ON vouchers (end_at, begin_at);
CREATE INDEX IF NOT EXISTS releases_voucher ON releases (voucher_id, id);
