package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"seckill/config"
	"seckill/internal/embedded"
	"seckill/internal/poll"
	"seckill/internal/tracing"
	"seckill/model"
	"seckill/repository"
)

const (
	// idempotencyAge is how long the answer to an Idempotency-Key is kept: an
	// administrator's script that is repeated after a weekend still gets it.
	idempotencyAge = 7 * 24 * time.Hour
	// messageAge is how long a webhook's message is known again: longer than any provider
	// repeats one.
	messageAge = 30 * 24 * time.Hour
	// janitorEvery is often enough for answers that are kept for days.
	janitorEvery = time.Hour
	// janitorPatience: a statement that was canceled ends at once.
	janitorPatience = time.Second
)

// Database is the database of the settings, with what is asked of it.
type Database struct {
	*repository.Database
	*repository.Vouchers
	*repository.Orders
	*repository.Releases

	Modes    *repository.Modes
	Epochs   *repository.Epochs
	Payments *repository.Payments
	Refunds  *repository.Refunds
	AdminLog *repository.AdminLog
}

// OpenDatabase opens the database of the settings: the real one, or the file in
// the data directory. It needs no running instance, and disturbs none.
func OpenDatabase(ctx context.Context, cfg config.Config, log *slog.Logger) (*Database, error) {
	return openDatabase(ctx, cfg, log, nil)
}

func openDatabase(ctx context.Context, cfg config.Config, log *slog.Logger, trace *tracing.Tracer) (*Database, error) {
	options := repository.Options{DSN: cfg.DatabaseDSN, Log: log, Events: cfg.Events != "", TLS: cfg.DatabaseTLS.Client(), Trace: trace}
	if cfg.Embedded() {
		if err := embedded.MakeDir(cfg.DataDir); err != nil {
			return nil, err
		}
		options.SQLiteFile = embedded.SQLiteFile(cfg.DataDir)
	}
	db, err := repository.Open(ctx, options)
	if err != nil {
		return nil, err
	}
	orders, err := repository.NewOrders(db, repository.OrderOptions{
		Strategy: repository.StockStrategy(cfg.StockStrategy), PaymentWindow: cfg.PaymentWindow, Mode: model.OrderMode(cfg.OrderMode),
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Database{
		Database: db, Vouchers: repository.NewVouchers(db, cfg.Currency), Orders: orders, Releases: repository.NewReleases(db),
		Modes: repository.NewModes(db), Epochs: repository.NewEpochs(db),
		Payments: repository.NewPayments(db), Refunds: repository.NewRefunds(db), AdminLog: repository.NewAdminLog(db),
	}, nil
}

// openDatabase opens the database, which also proves that it answers, and
// brings its schema up to date unless that is turned off.
func (i *Instance) openDatabase(ctx context.Context) (*Database, error) {
	opening, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	db, err := openDatabase(opening, i.cfg, i.log, i.tracer)
	if err != nil {
		return nil, fmt.Errorf("open the database (SECKILL_DATABASE_DSN): %w", err)
	}
	i.parts.OnClose("database", func(context.Context) error { return db.Close() })
	if i.cfg.Migrate {
		return db, db.Migrate(ctx)
	}
	return db, nil
}

// failoverPatience is how long an instance that sells on without its database is ready
// without it: a failover takes seconds, and one that lasts is to be seen.
const failoverPatience = 5 * time.Second

// withoutDatabase is how long this instance is ready while the database is away: in
// async it sells on until the orders in the queue are too old. A worker only waits for it.
func (i *Instance) withoutDatabase() time.Duration {
	if i.cfg.Async() && i.cfg.Role != config.RoleWorker {
		return min(i.cfg.BacklogMaxAge, failoverPatience)
	}
	return 0
}

// sweep deletes what is too old to be asked for, now and every hour. Several
// instances may do so at once.
func (i *Instance) sweep(db *Database) {
	i.parts.Loop("janitor", janitorPatience, func(ctx context.Context) {
		purge := func() {
			if gone, err := db.PurgeIdempotency(ctx, idempotencyAge); err != nil && ctx.Err() == nil {
				i.log.WarnContext(ctx, "old idempotency keys were not purged", slog.Any("error", err))
			} else if gone > 0 {
				i.log.InfoContext(ctx, "old idempotency keys were purged", slog.Int64("keys", gone))
			}
			if _, err := db.PurgeMessages(ctx, messageAge); err != nil && ctx.Err() == nil {
				i.log.WarnContext(ctx, "old webhook messages were not purged", slog.Any("error", err))
			}
		}
		purge()
		poll.Every(ctx, janitorEvery, purge)
	})
}

// DatabaseExists fails when the settings mean the embedded database and there is
// none: looking must not leave an empty one behind.
func DatabaseExists(cfg config.Config) error {
	if !cfg.Embedded() {
		return nil
	}
	return exists(embedded.SQLiteFile(cfg.DataDir), "database", "SECKILL_DATABASE_DSN")
}

func exists(path, what, variable string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no embedded %s in %s: name its directory with --data-dir, or set %s", what, path, variable)
	} else if err != nil {
		return fmt.Errorf("look for the embedded %s: %w", what, err)
	}
	return nil
}
