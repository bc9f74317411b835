package app

import (
	"context"
	"runtime"

	"seckill/config"
	"seckill/internal/embedded"
	"seckill/internal/password"
	"seckill/internal/token"
	"seckill/model"
	"seckill/repository"
	"seckill/service"
)

// openTokens makes the authority of an instance, which also accepts the tokens of
// other issuers and keeps their keys up to date. A worker verifies none.
func (i *Instance) openTokens(ctx context.Context) (*token.Authority, error) {
	trusted := make([]token.Issuer, 0, len(i.cfg.JWTIssuers))
	for _, other := range i.cfg.JWTIssuers {
		trusted = append(trusted, token.Issuer(other))
	}
	tokens, err := Tokens(ctx, i.cfg, token.Trust(i.log, trusted...))
	if err != nil {
		return nil, err
	}
	if len(trusted) > 0 && i.cfg.Role != config.RoleWorker {
		i.loop("keys of token issuers", lookPatience, tokens.Run) //nolint:contextcheck // until the stop
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
	if len(keys) == 0 {
		secret, err := embedded.Secret(ctx, cfg.DataDir)
		if err != nil {
			return nil, err
		}
		keys = append(keys, token.Key{ID: "1", Secret: secret})
	}
	return token.New(keys, cfg.JWTIssuer, cfg.JWTAudience, options...)
}

// newHasher hashes as many passwords at once as there are processors: more
// would be no faster and take more memory.
func newHasher() *password.Hasher { return password.New(runtime.GOMAXPROCS(0)) }

// CreateAdmin makes an administrator. It issues no token, so that it needs no
// secret that signs them.
func (db *Database) CreateAdmin(ctx context.Context, username, secret string) (model.Account, error) {
	return service.NewAccounts(repository.NewAccounts(db.Database), newHasher(), nil).CreateAdmin(ctx, username, secret)
}
