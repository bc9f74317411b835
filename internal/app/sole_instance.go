package app

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"seckill/config"
	"seckill/internal/poll"
	"seckill/model"
	"seckill/repository"
)

// lookAround is how often an instance looks at its claims on the database: as
// often as they are renewed.
const lookAround = time.Second

// soleInstance is the claim of an instance whose Redis or queue is inside its own
// process: no other instance on its database sees its locks, its hot copies or
// its backlog. A second one runs, but is not ready, sells nothing in async and
// touches no hot copy.
type soleInstance struct {
	claim *repository.Exclusive
	lacks string // the settings that would allow several instances
	alone atomic.Bool
}

// claimDatabase makes this instance the only one on its database, if it needs
// to be; else it returns nil.
func (i *Instance) claimDatabase(db *Database) *soleInstance {
	lacks := lacksForSeveral(i.cfg)
	if lacks == "" {
		return nil
	}
	s := &soleInstance{claim: db.Exclusive("embedded"), lacks: lacks}
	i.onClose("claim on the database", func(context.Context) error { return s.claim.Close() })
	i.probe("instance", s.ask)
	i.loop("solitude", lookAround, func(ctx context.Context) { // in sync too: expiry awaits it
		s.look(ctx)
		poll.Every(ctx, lookAround, func() { s.look(ctx) })
	})
	return s
}

// lacksForSeveral names the settings without which only one instance may use a
// real database; empty when all of them are there, and on SQLite, where the
// claim on the data directory does the same.
func lacksForSeveral(cfg config.Config) string {
	var lacks []string
	if cfg.RedisURL == "" {
		lacks = append(lacks, "SECKILL_REDIS_URL")
	}
	if cfg.EmbeddedQueue() {
		lacks = append(lacks, "SECKILL_NATS_URL")
	}
	if cfg.Embedded() {
		return ""
	}
	return strings.Join(lacks, " and ")
}

// ask is the probe.
func (s *soleInstance) ask(ctx context.Context) error {
	held, err := s.claim.Held(ctx)
	if err == nil && !held {
		err = s.crowded()
	}
	return err
}

func (s *soleInstance) crowded() error {
	return model.Unavailable("another instance with an embedded Redis or queue uses this database; set "+
		s.lacks+" to run several", nil)
}

// look keeps alone up to date. A database that is away changes nothing: async
// goes on without it for a while.
func (s *soleInstance) look(ctx context.Context) {
	if held, err := s.claim.Held(ctx); err == nil {
		s.alone.Store(held)
	}
}

// Selling implements the service's guards: nil while this instance is alone.
func (s *soleInstance) Selling() error {
	if s == nil || s.alone.Load() {
		return nil
	}
	return s.crowded()
}

// await returns when this instance is alone, or ctx has ended.
func (s *soleInstance) await(ctx context.Context) {
	_ = poll.Until(ctx, lookAround, func() (bool, error) { return s.Selling() == nil, nil }) // ctx tells
}
