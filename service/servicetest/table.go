// Package servicetest is what the tests of service and of its parts share.
package servicetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"seckill/model"
)

// Table is a database of one voucher whose queries take a millisecond.
type Table struct {
	mu      sync.Mutex
	Voucher model.Voucher
	Users   []string
	err     error

	ReadTook   time.Duration // besides QueryTime
	BuyersTook time.Duration
	Queries    atomic.Int64
	BuyersRead atomic.Int64
}

// QueryTime is what a query takes.
const QueryTime = time.Millisecond

// GetMany reads the voucher.
func (db *Table) GetMany(_ context.Context, ids []string) (map[string]model.Voucher, error) {
	db.Queries.Add(1)
	db.mu.Lock()
	v, err, took := db.Voucher.At(time.Now()), db.err, QueryTime+db.ReadTook
	db.mu.Unlock()
	<-time.After(took)
	found := map[string]model.Voucher{}
	for _, id := range ids {
		if id == v.ID {
			found[id] = v
		}
	}
	return found, err
}

// ShowMany is GetMany.
func (db *Table) ShowMany(ctx context.Context, ids []string) (map[string]model.Voucher, error) {
	return db.GetMany(ctx, ids)
}

// Buyers reads who has an order, or waits before another one.
func (db *Table) Buyers(_ context.Context, _ model.Voucher, yield func(string) error) error {
	db.BuyersRead.Add(1)
	<-time.After(db.BuyersTook)
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, user := range db.Users {
		if err := yield(user); err != nil {
			return err
		}
	}
	return db.err
}

// With works on the table while no query does.
func (db *Table) With(work func(db *Table)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	work(db)
}

// Change changes the voucher.
func (db *Table) Change(f func(v *model.Voucher)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	f(&db.Voucher)
	db.Voucher.Version++
}

// Fail makes every query fail from now on; nil heals it.
func (db *Table) Fail(err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.err = err
}

// NewTable is a voucher on sale with 10 of 10 units left.
func NewTable() *Table {
	return &Table{Voucher: model.Voucher{
		ID: "v1", Version: 1, VoucherFields: model.VoucherFields{
			State: model.VoucherPublished, Stock: 10, Remaining: 10, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour),
		},
	}}
}
