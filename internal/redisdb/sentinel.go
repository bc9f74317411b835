package redisdb

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/redisurl"
)

// primaryTimeout bounds asking for the primary and connecting to it. A Sentinel that hangs is asked twice, then the
// others, then the primary has budget.Look; the library would ask one that hangs for ever if this ended before.
const primaryTimeout = 5*budget.Brief + budget.Look

func newSentinelClient(options *redis.FailoverOptions, target redisurl.Target) *redis.Client {
	options.MasterName = target.Primary
	options.DialerRetries = redisDials
	options.MaxRetries = redisRetries
	options.DialTimeout = primaryTimeout
	options.Dialer = dialAnyway(options.Dialer)
	if target.SentinelLogin {
		options.SentinelUsername, options.SentinelPassword = target.Username, target.Password
	}
	client := redis.NewFailoverClient(options)
	// The library has one set of limits for primary and Sentinels: it has copied the primary's, and reads these later.
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = budget.Brief, budget.Brief, budget.Brief
	options.MaxRetries = -1 // none
	return client
}

// dialAnyway reaches Sentinels, and the primary that they name, which may be dead until they elect another. The
// library's pool stops dialing for a second after as many failures as it has places, and would miss the new primary
// meanwhile. So it sees no failure: it gets a connection on which everything fails with the error of the dial.
func dialAnyway(
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			nowhere, _ := net.Pipe()
			return unreachable{nowhere, err}, nil //nolint:nilerr // see above
		}
		return conn, nil
	}
}

type unreachable struct {
	net.Conn

	err error
}

func (u unreachable) Read([]byte) (int, error) { return 0, u.err }

func (u unreachable) Write([]byte) (int, error) { return 0, u.err }
