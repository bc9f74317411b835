package command

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"seckill/config"
	"seckill/model"
	"seckill/repository"
	"seckill/service"
)

// lookAround is how often an instance that must be alone looks whether it is:
// as often as the claim itself is renewed.
const lookAround = time.Second

// seller tells whether this instance may sell now.
type seller interface{ Selling() error }

// solitude is what an instance needs whose Redis or queue is inside its own
// process: no other instance on its database sees its locks, its hot copies or
// its backlog. A second one runs, but is not ready, sells nothing in async and
// touches nobody's hot copies.
type solitude struct {
	claim *repository.Exclusive
	lacks string // the settings that would allow several instances
	alone atomic.Bool
}

// needsSolitude names the settings without which only one instance may use a
// real database; empty when all of them are there, and on SQLite, where the
// claim on the data directory does the same.
func needsSolitude(cfg config.Config) string {
	var lacks []string
	if cfg.RedisURL == "" {
		lacks = append(lacks, "SECKILL_REDIS_URL")
	}
	if cfg.OrderMode == "async" && cfg.NATSURL == "" {
		lacks = append(lacks, "SECKILL_NATS_URL")
	}
	if cfg.Embedded() {
		return ""
	}
	return strings.Join(lacks, " and ")
}

// claimDatabase makes this instance the only one on its database, if it needs
// to be; else it returns nil.
func (i *Instance) claimDatabase(cfg config.Config, db *repository.Database) *solitude {
	lacks := needsSolitude(cfg)
	if lacks == "" {
		return nil
	}
	s := &solitude{claim: db.Exclusive("embedded"), lacks: lacks}
	i.onClose("claim on the database", func(context.Context) error { return s.claim.Close() })
	i.probes = append(i.probes, service.Probe{Name: "instance", Ask: s.ask})
	if cfg.OrderMode == "async" {
		i.background("solitude", lookAround, s.look)
	}
	return s
}

// ask is the probe.
func (s *solitude) ask(ctx context.Context) error {
	held, err := s.claim.Held(ctx)
	if err == nil && !held {
		err = s.crowded()
	}
	return err
}

func (s *solitude) crowded() error {
	return model.Unavailable("another instance with an embedded Redis or queue uses this database; set "+
		s.lacks+" to run several", nil)
}

// look keeps alone up to date. A database that is away takes no solitude: async
// goes on without it for a while.
func (s *solitude) look(ctx context.Context) error {
	ticker := time.NewTicker(lookAround)
	defer ticker.Stop()
	for {
		if held, err := s.claim.Held(ctx); err == nil {
			s.alone.Store(held)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// await returns when this instance is alone, or ctx has ended.
func (s *solitude) await(ctx context.Context) {
	if s == nil {
		return
	}
	ticker := time.NewTicker(lookAround)
	defer ticker.Stop()
	for !s.alone.Load() && ctx.Err() == nil {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// lonelySeller sells when the order mode allows it and the instance is alone.
type lonelySeller struct {
	seller
	solitude *solitude
}

// Selling implements the service's guards.
func (s lonelySeller) Selling() error {
	if !s.solitude.alone.Load() {
		return s.solitude.crowded()
	}
	return s.seller.Selling()
}
