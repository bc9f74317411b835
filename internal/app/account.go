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

// CreateAdmin makes an administrator. It issues no token, so that it needs no
// secret that signs them.
func (db *Database) CreateAdmin(ctx context.Context, username, secret string) (model.Account, error) {
	return service.NewAccounts(repository.NewAccounts(db.Database), newHasher(), nil).CreateAdmin(ctx, username, secret)
}
