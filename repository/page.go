package repository

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// streamRows are read at once for streams: a fraction of a megabyte, and few
// enough questions that their number does not matter.
const streamRows = 500

// pages calls yield for everything that read finds, page by page. Read is given
// what the page before ended with, at first the zero value, and a page that is
// shorter than size is the last. An error of yield ends it and is returned.
func pages[T any](size int, read func(last T) ([]T, error), yield func([]T) error) error {
	var last T
	for {
		page, err := read(last)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := yield(page); err != nil || len(page) < size {
			return err
		}
		last = page[len(page)-1]
	}
}

// each makes of a function of one a function of a page.
func each[T any](yield func(T) error) func([]T) error {
	return func(page []T) error {
		for _, one := range page {
			if err := yield(one); err != nil {
				return err
			}
		}
		return nil
	}
}

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

// behind names a table of a list that goes on behind something. It is read through the index that has the list in its order: by its
// estimates MariaDB would now and then take the beginning of an index alone, and read it from there up to that point.
func behind(d sqldb.Dialect, table, index string, begun bool) string {
	if !begun {
		return table
	}
	return d.Through(table, index)
}

// notFound makes an absent row the domain's NOT_FOUND.
func notFound(err error, what string) error {
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return model.NotFound(what)
	}
	return err
}

// byID reads the row of an id; NOT_FOUND when there is none, of a kind that what names.
func byID[T any](ctx context.Context, d *sqldb.Database, what, id string) (row T, err error) {
	if !model.ValidID(id) { // see possible
		return row, fmt.Errorf("get %s %q: %w", what, id, model.NotFound(what))
	}
	err = d.Read(ctx, "get "+what+" "+id, func(db *gorm.DB) error {
		return notFound(db.Where("id = ?", id).Take(&row).Error, what)
	})
	return row, err
}

// due reads what is to be tried now, what waits longest first.
func due[T any](ctx context.Context, d *sqldb.Database, action string, limit int) (list []T, err error) {
	err = d.Read(ctx, action, func(db *gorm.DB) error {
		return db.Where("next_at <= " + d.Dialect.Now).Order("next_at").Limit(limit).Find(&list).Error
	})
	return list, err
}
