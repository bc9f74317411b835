package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"seckill/config"
	"seckill/internal/embedded"
	"seckill/internal/password"
	"seckill/internal/token"
	"seckill/model"
	"seckill/repository"
	"seckill/service"
)

// Database is the database of the settings, with what is asked of it.
type Database struct {
	*repository.Database
	Modes    *repository.Modes
	Vouchers *repository.Vouchers
	Orders   *repository.Orders
}

// OpenDatabase opens the database of the settings: the real one, or the file in
// the data directory. It needs no running instance, and disturbs none.
func OpenDatabase(ctx context.Context, cfg config.Config, log *slog.Logger) (*Database, error) {
	options := repository.Options{DSN: cfg.DatabaseDSN, Log: log}
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
	return &Database{db, repository.NewModes(db), repository.NewVouchers(db, cfg.Currency), orders}, nil
}

// CreateAdmin makes an administrator. It issues no token, so that it needs no
// secret that signs them.
func (db *Database) CreateAdmin(ctx context.Context, username, secret string) (model.Account, error) {
	return service.NewAccounts(repository.NewAccounts(db.Database), newHasher(), nil).CreateAdmin(ctx, username, secret)
}

// WithAsyncParts opens everything behind asynchronous orders for one piece of
// work. Servers of their own are not disturbed. What is embedded is inside its
// server's process, which must not run: then this process takes its place, with
// a Redis that is empty.
func WithAsyncParts(ctx context.Context, cfg config.Config, log *slog.Logger, work func(a *AsyncParts) error) (err error) {
	cfg.OrderMode = config.Async // also when the database is sold from in sync: its queue may hold orders
	cfg.Migrate = false          // a command that looks changes no schema
	i := newInstance(cfg, log)
	defer func() { err = errors.Join(err, i.close(ctx)) }()
	const running = "what is embedded is inside its server's process, which must be stopped first: %w"
	if err := i.claimDataDir(); err != nil {
		return fmt.Errorf(running, err)
	}
	servers, err := i.openServers(ctx)
	if err != nil {
		return err
	}
	if s := servers.sole; s != nil {
		if err := s.ask(ctx); err != nil {
			return fmt.Errorf(running, err)
		}
		s.alone.Store(true)
	}
	record, err := servers.db.Modes.Read(ctx)
	if err != nil {
		return err
	}
	a, err := i.openAsyncParts(ctx, servers, orderMode{deployment: record.Deployment})
	if err != nil {
		return err
	}
	return work(a)
}

// DatabaseExists fails when the settings mean the embedded database and there is
// none: looking must not leave an empty one behind.
func DatabaseExists(cfg config.Config) error {
	if !cfg.Embedded() {
		return nil
	}
	return exists(embedded.SQLiteFile(cfg.DataDir), "database", "SECKILL_DATABASE_DSN")
}

// QueueExists fails when the settings mean the embedded queue and there is none.
func QueueExists(cfg config.Config) error {
	if cfg.NATSURL != "" {
		return nil
	}
	return exists(filepath.Join(cfg.DataDir, "nats"), "queue", "SECKILL_NATS_URL")
}

func exists(path, what, variable string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no embedded %s in %s: name its directory with --data-dir, or set %s", what, path, variable)
	} else if err != nil {
		return fmt.Errorf("look for the embedded %s: %w", what, err)
	}
	return nil
}

// Tokens makes the authority that signs and verifies tokens with the settings'
// secrets, or with the one kept in the data directory.
func Tokens(ctx context.Context, cfg config.Config) (*token.Authority, error) {
	keys := make([]token.Key, 0, max(len(cfg.JWTKeys), 1))
	for _, key := range cfg.JWTKeys {
		keys = append(keys, token.Key(key))
	}
	if len(keys) == 0 {
		secret, err := embedded.Secret(ctx, cfg.DataDir)
		if err != nil {
			return nil, err
		}
		keys = append(keys, token.Key{ID: "1", Secret: secret})
	}
	return token.New(keys, cfg.JWTIssuer, cfg.JWTAudience)
}

// newHasher hashes as many passwords at once as there are processors: more
// would be no faster and take more memory.
func newHasher() *password.Hasher { return password.New(runtime.GOMAXPROCS(0)) }
