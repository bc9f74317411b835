package app

import (
	"context"
	"errors"
	"log/slog"
	"runtime"

	"seckill/config"
	"seckill/internal/budget"
	"seckill/internal/embedded"
	"seckill/internal/password"
	"seckill/internal/telemetry"
	"seckill/internal/token"
	"seckill/repository"
	"seckill/service"
	"seckill/service/sale/cache"
)

// openTokens makes the authority of an instance, which also accepts the tokens of
// other issuers and keeps their keys up to date. A worker verifies none, and has no authority.
func (i *Instance) openTokens(ctx context.Context) (*token.Authority, error) {
	trusted := make([]token.Issuer, 0, len(i.cfg.JWTIssuers))
	names := []string{i.cfg.JWTIssuer}
	for _, other := range i.cfg.JWTIssuers {
		trusted, names = append(trusted, token.Issuer(other)), append(names, other.Name)
	}
	refusals := telemetry.NewTokens(i.registry, names...)
	if i.cfg.Role == config.RoleWorker {
		return nil, nil //nolint:nilnil // see above
	}
	tokens, err := Tokens(ctx, i.cfg, token.Trust(i.log, trusted...), token.Report(i.log, func(issuer string, why token.Reason) {
		refusals.WithLabelValues(issuer, string(why)).Inc()
	}))
	if err != nil {
		return nil, err
	}
	if len(trusted) > 0 {
		i.parts.Loop("keys of token issuers", budget.Brief, tokens.Run) //nolint:contextcheck // until the stop
	}
	return tokens, nil
}

// Tokens makes the authority that signs and verifies tokens with the settings'
// secrets, or with the one kept in the data directory.
func Tokens(ctx context.Context, cfg config.Config, options ...token.Option) (*token.Authority, error) {
	keys := make([]token.Key, 0, max(len(cfg.JWTKeys), 1))
	for _, key := range cfg.JWTKeys {
		keys = append(keys, token.Key(key))
	}
	if len(keys) == 0 && !cfg.Embedded() { // the settings of a worker
		return nil, errors.New("SECKILL_JWT_SECRET is required with a real database")
	}
	if len(keys) == 0 {
		secret, err := embedded.Secret(ctx, cfg.DataDir)
		if err != nil {
			return nil, err
		}
		keys = append(keys, token.Key{ID: "1", Secret: secret})
	}
	return token.New(keys, cfg.JWTIssuer, cfg.JWTAudience, options...)
}

// newHasher hashes on half of the processors, so that a sale always has the other
// half: more would only let those who try passwords try more of them.
func newHasher() *password.Hasher { return password.New(runtime.GOMAXPROCS(0) / 2) }

// openAccounts makes the service of accounts. What ended tokens before the start is
// known when it returns, unless the schema is not up to date yet.
func (i *Instance) openAccounts(db *Database, tokens *token.Authority) (*service.Accounts, error) {
	store := repository.NewAccounts(db.Database)
	known, err := cache.NewAccounts(cache.AccountSource{ByID: store.ByID, Changed: store.Changed}, service.LongestSession+budget.Hour, i.log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), budget.Step)
	defer cancel()
	if err := known.Refresh(ctx); err != nil {
		i.log.WarnContext(ctx, "changes of accounts are not known at the start", slog.Any("error", err))
	}
	i.parts.Loop("account changes", budget.Brief, known.Watch)
	return service.NewAccounts(service.AccountDeps{
		Store: store, Hasher: newHasher(), Tokens: tokens, Cache: known, Metrics: telemetry.NewAccounts(i.registry), Log: i.log,
	}), nil
}

// Administrators looks after administrators. It issues no token, so that it needs no
// secret that signs them.
func (db *Database) Administrators() *service.Administrators {
	return service.NewAdministrators(repository.NewAccounts(db.Database), newHasher())
}
