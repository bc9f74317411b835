package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// RedisClaims keeps which Redis the instances of a database in MySQL use: two that
// use different ones would sell without knowing of each other.
type RedisClaims struct{ db *sqldb.Database }

// NewRedisClaims keeps the claim of a database.
func NewRedisClaims(db *sqldb.Database) *RedisClaims { return &RedisClaims{db: db} }

// Read reads the claim, and how long ago it was renewed by the database's clock.
func (c *RedisClaims) Read(ctx context.Context) (claim model.RedisClaim, age time.Duration, err error) {
	var row struct {
		model.RedisClaim `gorm:"embedded"`

		Now clock `gorm:"column:read_at"`
	}
	err = c.db.Read(ctx, "read which Redis is used", func(db *gorm.DB) error {
		return db.Raw("SELECT identity, renewed_at, " + c.db.Dialect.Now + " AS read_at FROM redis_claim WHERE id = 1").Scan(&row).Error
	})
	return row.RedisClaim, row.Now.Sub(row.RenewedAt), err
}

// Take makes an identity the one that is used, or renews it; false when the claim
// is not the one that was read any more.
func (c *RedisClaims) Take(ctx context.Context, identity string, from model.RedisClaim) (bool, error) {
	var taken bool
	err := c.db.WriteRepeatable(ctx, fmt.Sprintf("claim the database for the Redis %s", identity), func(tx *gorm.DB, _ bool) error {
		done := tx.Exec("UPDATE redis_claim SET identity = ?, renewed_at = "+c.db.Dialect.Now+
			" WHERE id = 1 AND identity = ? AND renewed_at = ?", identity, from.Identity, from.RenewedAt)
		taken = done.RowsAffected == 1
		return done.Error
	})
	return taken, err
}
