package repository

import (
	"context"

	"gorm.io/gorm"

	"seckill/internal/budget"
	"seckill/model"
	"seckill/repository/sqldb"
)

// LookFirst makes every transaction look for existing rows first.
func (o *Orders) LookFirst() { o.readFirst.Store(1 << 40) }

// SlowTaking is after which it is found out whose row a statement waited for.
const SlowTaking = budget.Glance

// MoveTogether makes one move of each order in a single transaction, whatever the moves are.
func MoveTogether(ctx context.Context, db *sqldb.Database, orders []model.Order, to []model.OrderStatus, by []model.Mover) ([]model.Order, error) {
	changes := make([]statusChange, len(orders))
	for i, o := range orders {
		move, err := model.Move(o.Status, to[i], by[i])
		if err != nil {
			return nil, err
		}
		changes[i] = statusChange{order: o, move: move, actor: "test"}
	}
	var moved []model.Order
	err := db.Write(ctx, "move orders", func(tx *gorm.DB) error {
		var err error
		moved, err = moveOrders(tx, db, changes)
		return err
	})
	return moved, err
}
