package repository

import (
	"embed"

	"gorm.io/gorm"

	"seckill/model"
)

// The statements that are files, see their comments.
var (
	//go:embed sql/stock_conditional.sql
	stockConditional string
	//go:embed sql/stock_pessimistic.sql
	stockPessimistic string
	//go:embed sql/stock_optimistic.sql
	stockOptimistic string
	//go:embed sql/order_existing.sql
	orderExisting string
	//go:embed sql/order_cancel.sql
	orderCancel string
	//go:embed sql/stock_return.sql
	stockReturn string
	//go:embed sql/copy_read.sql
	copyRead string
	//go:embed sql/copy_close.sql
	copyClose string
	//go:embed sql/copy_barrier.sql
	copyBarrier string
	//go:embed sql/copy_progress.sql
	copyProgress string
	//go:embed sql/copy_open.sql
	copyOpen string
	//go:embed sql/snapshot_live.sql
	snapshotLive string
	//go:embed sql/voucher_count.sql
	voucherCount string
	//go:embed migrations/mysql/*.sql migrations/sqlite/*.sql
	migrationFiles embed.FS
)

// streamRows are read at once for streams: a fraction of a megabyte, and few
// enough questions that their number does not matter.
const streamRows = 500

// newestFirst limits a query to what follows a cursor. The first condition is
// implied by the second; it is what the index on (…, created_at, id) can use.
func newestFirst(db *gorm.DB, after model.Cursor, limit int) *gorm.DB {
	db = db.Order("created_at DESC, id DESC").Limit(limit)
	if after.ID == "" {
		return db
	}
	return db.Where("created_at <= ?", after.At).
		Where("(created_at < ? OR id < ?)", after.At, after.ID)
}
