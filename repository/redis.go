package repository

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Timeouts of the Redis client. Redis answers in microseconds; one that needs
// longer than this is stopped, cut off or starting, and the request it holds
// up still has to be answered within its budget.
const (
	redisDialTimeout = time.Second
	redisIOTimeout   = 2 * time.Second
	// redisPoolSize connections are enough for two cores' worth of concurrent
	// calls; more callers wait for a free one at most redisIOTimeout.
	redisPoolSize = 64
	// redisRetries send a call again after a lost connection. Every script of
	// ours may be sent twice without harm.
	redisRetries = 1
)

// OpenRedis makes a client for `redis://…` or, for a comma-separated list, of
// a Redis Cluster. It does not connect yet.
func OpenRedis(urls string) (redis.UniversalClient, error) {
	var options *redis.UniversalOptions
	for url := range strings.SplitSeq(urls, ",") {
		one, err := redis.ParseURL(strings.TrimSpace(url))
		if err != nil {
			return nil, fmt.Errorf("read the Redis URL: %w", withoutURL(err))
		}
		if options == nil {
			options = &redis.UniversalOptions{
				DB: one.DB, Username: one.Username, Password: one.Password, TLSConfig: one.TLSConfig,
				IsClusterMode: strings.Contains(urls, ","),
			}
		}
		options.Addrs = append(options.Addrs, one.Addr)
	}
	options.ContextTimeoutEnabled = true // otherwise a caller's deadline is ignored on reads
	options.DialTimeout = redisDialTimeout
	options.ReadTimeout = redisIOTimeout
	options.WriteTimeout = redisIOTimeout
	options.PoolTimeout = redisIOTimeout
	options.PoolSize = redisPoolSize
	options.MaxRetries = redisRetries
	return redis.NewUniversalClient(options), nil
}

// withoutURL keeps a password that stands in a URL out of messages.
func withoutURL(err error) error {
	var quoted interface{ Unwrap() error }
	if errors.As(err, &quoted) && quoted.Unwrap() != nil {
		return quoted.Unwrap()
	}
	return err
}
