package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"seckill/config"
	"seckill/internal/budget"
	"seckill/internal/embedded"
	"seckill/internal/tracing"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// Database is the database of the settings, with what is asked of it.
type Database struct {
	*sqldb.Database
	*repository.Vouchers
	*repository.Orders
	*repository.Releases

	Modes    *repository.Modes
	Epochs   *repository.Epochs
	Payments *repository.Payments
	Refunds  *repository.Refunds
	Draws    *repository.Draws
	AdminLog *repository.AdminLog
}

// OpenDatabase opens the database of the settings: the real one, or the file in
// the data directory. It needs no running instance, and disturbs none.
func OpenDatabase(ctx context.Context, cfg config.Config, log *slog.Logger) (*Database, error) {
	return openDatabase(ctx, cfg, log, nil)
}

func openDatabase(ctx context.Context, cfg config.Config, log *slog.Logger, trace *tracing.Tracer) (*Database, error) {
	options := sqldb.Options{DSN: cfg.DatabaseDSN, Log: log, Events: cfg.Events != "", TLS: cfg.DatabaseTLS.Client(), Trace: trace}
	if cfg.Embedded() {
		if err := embedded.MakeDir(cfg.DataDir); err != nil {
			return nil, err
		}
		options.SQLiteFile = embedded.SQLiteFile(cfg.DataDir)
	}
	db, err := sqldb.Open(ctx, options)
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
		Draws: repository.NewDraws(db, cfg.PaymentWindow),
	}, nil
}

// openDatabase opens the database, which also proves that it answers, and
// brings its schema up to date unless that is turned off.
func (i *Instance) openDatabase(ctx context.Context) (*Database, error) {
	opening, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	db, err := openDatabase(opening, i.cfg, i.log, i.tracer)
	if err != nil {
		return nil, fmt.Errorf("open the database (%s): %w", inDataDir(i.cfg.Embedded(), "SECKILL_DATABASE_DSN"), err)
	}
	i.parts.OnClose("database", func(context.Context) error { return db.Close() })
	if i.cfg.Migrate {
		return db, db.Migrate(ctx)
	}
	return db, nil
}

// DatabaseExists fails when the settings mean the embedded database and there is
// none: looking must not leave an empty one behind.
func DatabaseExists(cfg config.Config) error {
	if !cfg.Embedded() {
		return nil
	}
	return embedded.Exists(embedded.SQLiteFile(cfg.DataDir), "database", "SECKILL_DATABASE_DSN")
}
