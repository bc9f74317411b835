package repository

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"seckill/internal/lane"
	"seckill/model"
	"seckill/repository/sqldb"
)

//go:embed sql/*.sql
var statements embed.FS

// texts are the statements by name: without their comments, in one line.
var texts = readTexts() //nolint:gochecknoglobals // constant

func readTexts() map[string]string {
	texts := map[string]string{}
	files, err := statements.ReadDir("sql")
	for _, file := range files {
		text, failed := statements.ReadFile("sql/" + file.Name())
		err = cmp.Or(err, failed)
		var lines []string
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
				lines = append(lines, line)
			}
		}
		texts[strings.TrimSuffix(file.Name(), ".sql")] = strings.Join(lines, " ")
	}
	if err != nil {
		panic(err) // the program was built without them
	}
	return texts
}

// parted works on items in one statement, in several where one is too large: it is not sent, the transaction goes on.
func parted[T any](items []T, do func(some []T) error) error {
	return lane.Halve(items, sqldb.TooLarge, do)
}

// keyed reads the rows that belong to some of the words of a question, parted, and gives them by their word.
func keyed[T any](
	action string, words []string, key func(T) string, query func(some []string) *gorm.DB,
) (map[string]T, error) {
	found := make(map[string]T, len(words))
	err := parted(words, func(some []string) error {
		var rows []T
		err := query(some).Find(&rows).Error
		for _, row := range rows {
			found[key(row)] = row
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	return found, nil
}

type reader = func(ctx context.Context, action string, query func(*gorm.DB) error) error

func list[T any](ctx context.Context, read reader, action string, query func(*gorm.DB) *gorm.DB) (rows []T, err error) {
	err = read(ctx, action, func(db *gorm.DB) error { return query(db).Find(&rows).Error })
	return rows, err
}

// got is what a query has got.
func got[T any](ctx context.Context, read reader, action string, query func(*gorm.DB) (T, error)) (what T, err error) {
	err = read(ctx, action, func(db *gorm.DB) (err error) {
		what, err = query(db)
		return err
	})
	return what, err
}

func first[T any](query *gorm.DB, what string) (*T, error) {
	var rows []T
	if err := query.Limit(1).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if len(rows) == 0 {
		return nil, nil //nolint:nilnil // absent is what it is
	}
	return &rows[0], nil
}

// scanned reads rows into what their columns are told, without GORM's reflection: some thousand at once.
func scanned[T any](rows *sql.Rows, err error, size int, columns func(*T) []any) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := make([]T, 0, size)
	for rows.Next() {
		all = append(all, *new(T))
		if err := rows.Scan(columns(&all[len(all)-1])...); err != nil {
			return nil, fmt.Errorf("read a row: %w", err)
		}
	}
	return all, rows.Err()
}

func exists(tx *gorm.DB, query string, args ...any) (found bool, err error) {
	if err = tx.Raw("SELECT EXISTS ("+query+")", args...).Scan(&found).Error; err != nil {
		return false, fmt.Errorf("look for rows (%s): %w", query, err)
	}
	return found, nil
}

// paged reads a page, newest first, and its next cursor, empty at the end; query nil: none. VALIDATION: bad cursor.
func paged[T any](ctx context.Context, d *sqldb.Database, action, cursor string, size int, at func(T) model.Cursor,
	query func(db *gorm.DB, after model.Cursor, most int) (*gorm.DB, error),
) (page []T, next string, err error) {
	after, err := model.ParseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	limit := model.PageSize(size)
	err = d.Browse(ctx, action, func(db *gorm.DB) error {
		found, err := query(db, after, limit+1)
		if err != nil || found == nil {
			return err
		}
		return found.Find(&page).Error
	})
	if err != nil || len(page) <= limit {
		return append([]T{}, page...), "", err
	}
	return page[:limit], at(page[limit-1]).String(), nil
}

// having restricts a query to rows with a value; an empty one restricts nothing.
func having[T ~string](query *gorm.DB, condition string, value T) *gorm.DB {
	if value == "" {
		return query
	}
	return query.Where(condition, value)
}

// locked has the rows of a query locked until the transaction ends.
func locked(tx *gorm.DB) *gorm.DB {
	return tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate})
}

// orderMode is the order mode within a SELECT, locked: under READ COMMITTED a subselect locks nothing itself.
func orderMode(d sqldb.Dialect) string {
	return "(SELECT mode FROM order_mode WHERE id = 1" + d.Share + ")"
}

// forced is how MySQL says what sqldb.Dialect.Through says.
var forced = regexp.MustCompile(`FORCE INDEX \((\w+)\)`)

// sqlOf is a named statement, with the dialect's clock for NOW(6), and its index hints. It panics without a file.
func sqlOf(d sqldb.Dialect, name string) string {
	text, ok := texts[name]
	if !ok {
		panic("there is no sql/" + name + ".sql")
	}
	if d.Name == sqldb.SQLite {
		text = forced.ReplaceAllString(text, "INDEXED BY $1")
	}
	return strings.ReplaceAll(text, "NOW(6)", d.Now)
}

// resolution is what DATETIME columns keep; times are cut to it before they are compared.
const resolution = time.Microsecond

func stored(t time.Time) time.Time { return t.UTC().Truncate(resolution) }

// clock reads the database's clock, which MySQL gives as a time and SQLite as microseconds since 1970.
type clock struct{ time.Time }

func (c *clock) Scan(value any) error {
	switch value := value.(type) {
	case time.Time:
		c.Time = value.UTC()
	case int64:
		c.Time = time.UnixMicro(value).UTC()
	default:
		return fmt.Errorf("read the database's clock: unexpected %T", value)
	}
	return nil
}

func (c clock) Value() (driver.Value, error) { return c.Time, nil }

func readClock(tx *gorm.DB, d sqldb.Dialect) (time.Time, error) {
	var now clock
	if err := tx.Raw("SELECT " + d.Now).Row().Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return stored(now.Time), nil
}

// validIDs are the ids that can exist. SQL ignores blanks at the end, and refuses ASCII beside other letters.
func validIDs(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !model.ValidID(id) })
}

// streamRows are read at once for streams: a fraction of a megabyte, and few questions.
const streamRows = 500

// pages yields all that read finds, page by page: last is what the page before ended with. One below size is the last.
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

// newestFirst limits a query to what follows a cursor.
func newestFirst(db *gorm.DB, after model.Cursor, limit int) *gorm.DB {
	return latestFirst(db, "created_at", "id", after, limit)
}

// latestFirst is newestFirst by other columns. The implied first condition is for the index.
func latestFirst(db *gorm.DB, column, id string, after model.Cursor, limit int) *gorm.DB {
	db = db.Order(column + " DESC, " + id + " DESC").Limit(limit)
	if after.ID == "" {
		return db
	}
	return db.Where(column+" <= ?", after.At).
		Where("("+column+" < ? OR "+id+" < ?)", after.At, after.ID)
}

// behind names a table of a list that goes on behind something, read through the index in the list's order: by its
// estimates MariaDB would now and then read from that index's beginning up to that point.
func behind(d sqldb.Dialect, table, index string, begun bool) string {
	if !begun {
		return table
	}
	return d.Through(table, index)
}

func notFound(err error, what string) error {
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return model.NotFound(what)
	}
	return err
}

// take reads the row of an id. NOT_FOUND, of the kind in what: there is none, or none is possible, see possible.
func take[T any](tx *gorm.DB, what, id string) (row T, err error) {
	if !model.ValidID(id) {
		return row, model.NotFound(what)
	}
	err = tx.Where("id = ?", id).Take(&row).Error
	return row, notFound(err, what)
}

func byID[T any](ctx context.Context, d *sqldb.Database, what, id string) (T, error) {
	return got(ctx, d.Read, "get "+what+" "+id, func(db *gorm.DB) (T, error) { return take[T](db, what, id) })
}

// due reads what is to be tried now, what waits longest first.
func due[T any](ctx context.Context, d *sqldb.Database, action string, limit int) ([]T, error) {
	return list[T](ctx, d.Read, action, func(db *gorm.DB) *gorm.DB {
		return db.Where("next_at <= " + d.Dialect.Now).Order("next_at").Limit(limit)
	})
}
