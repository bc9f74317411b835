package hotcopy

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"seckill/internal/redisdb"
	"seckill/model"
)

// quietCopies are asked for in one pipeline.
const quietCopies = 1000

// Incarnation is another word whenever Redis may have lost what it had, see redisdb.Incarnation.
func (s *Store) Incarnation(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+s.options.Slack)
	defer cancel()
	return redisdb.Incarnation(ctx, s.client, s.options.Identity)
}

// Quiet tells of each copy whether it is loaded in the epoch of its record, has nothing
// reserved, and knows as many buyers as units are taken. False says nothing: Redis may not have
// answered.
func (s *Store) Quiet(ctx context.Context, records []model.EpochRecord) []bool {
	quiet := make([]bool, 0, len(records))
	for some := range slices.Chunk(records, quietCopies) {
		quiet = append(quiet, s.quiet(ctx, some)...)
	}
	return quiet
}

func (s *Store) quiet(ctx context.Context, records []model.EpochRecord) []bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+s.options.Slack)
	defer cancel()
	pipe := s.client.Pipeline()
	pending, due, buyers := make([]*redis.IntCmd, len(records)), make([]*redis.IntCmd, len(records)), make([]*redis.IntCmd, len(records))
	for i, r := range records {
		pending[i] = pipe.HLen(ctx, pendingKey(r.VoucherID, r.Epoch))
		due[i] = pipe.ZCard(ctx, dueKey(r.VoucherID, r.Epoch))
		buyers[i] = pipe.HLen(ctx, buyersKey(r.VoucherID, r.Epoch))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	quiet := make([]bool, len(records))
	for i, r := range records { // each key has a sentinel
		quiet[i] = pending[i].Val() == 1 && due[i].Val() == 1 && buyers[i].Val() == r.Taken+1
	}
	return quiet
}
