package lab

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// cells are an account and a stock kept as two plain Redis keys. Nothing but
// the lock under test protects them.
type cells struct {
	client             *redis.Client
	balance, remaining string
}

func newCells(s setup) (*cells, error) {
	client, err := newClient(s.Site.Redis, nil)
	if err != nil {
		return nil, err
	}
	return &cells{client: client, balance: s.Site.key(s.Name + ":balance"), remaining: s.Site.key(s.Name + ":remaining")}, nil
}

// openCells is the ledger of strategies whose account lives in Redis.
func openCells(_ context.Context, s setup) (ledger, error) { return newCells(s) }

func (c *cells) open(ctx context.Context, stock int64) error {
	return c.write(ctx, figures{Remaining: stock})
}

func (c *cells) read(ctx context.Context) (figures, error) {
	values, err := c.client.MGet(ctx, c.balance, c.remaining).Result()
	if err != nil {
		return figures{}, fmt.Errorf("read the account: %w", err)
	}
	var numbers [2]int64
	for i, value := range values {
		text, _ := value.(string)
		if numbers[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return figures{}, fmt.Errorf("read the account: %w", err)
		}
	}
	return figures{Balance: numbers[0], Remaining: numbers[1]}, nil
}

func (c *cells) write(ctx context.Context, f figures) error {
	if err := c.client.MSet(ctx, c.balance, f.Balance, c.remaining, f.Remaining).Err(); err != nil {
		return fmt.Errorf("write the account: %w", err)
	}
	return nil
}

func (c *cells) close() error { return c.client.Close() }
