package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"seckill/config"
	"seckill/internal/embedded"
	"seckill/repository"
)

// withDatabase opens the database of the settings for one piece of work. It
// needs no running server, and disturbs none.
func (p Process) withDatabase(ctx context.Context, cfg config.Config, work func(*repository.Database) error) (err error) {
	if cfg.Embedded() {
		if err := embedded.MakeDir(cfg.DataDir); err != nil {
			return err
		}
	}
	// What a server tells its operator would only be in the way here.
	cfg.LogLevel = max(cfg.LogLevel, slog.LevelWarn)
	db, err := openDatabase(ctx, cfg, newLogger(cfg, p.Stderr))
	if err != nil {
		return err
	}
	defer func() {
		if closed := db.Close(); closed != nil {
			err = errors.Join(err, fmt.Errorf("close the database: %w", closed))
		}
	}()
	return work(db)
}

// embeddedExists fails when the settings mean the embedded database that was
// never made: looking must not leave an empty one behind.
func embeddedExists(cfg config.Config) error {
	if !cfg.Embedded() {
		return nil
	}
	file := embedded.SQLiteFile(cfg.DataDir)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no embedded database in %s: name its directory with --data-dir, "+
			"or set SECKILL_DATABASE_DSN", file)
	} else if err != nil {
		return fmt.Errorf("look for the embedded database: %w", err)
	}
	return nil
}
