package lab

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// site is where a run takes place. A child process is told it on its standard
// input, because it may hold passwords.
type site struct {
	Prefix string   `json:"prefix"` // of every key; unique to the run
	Redis  string   `json:"redis"`  // the single instance
	Quorum []string `json:"quorum"` // three independent ones
	DSN    string   `json:"dsn"`    // of the run's own schema; empty without MySQL
	SQLite string   `json:"sqlite"` // a file of the run's own; empty with MySQL
}

func (s site) key(name string) string { return s.Prefix + name }

// ioTimeout bounds one answer of Redis: far longer than a healthy one takes on
// a busy machine, far shorter than the run.
const ioTimeout = 10 * time.Second

// newClient opens a client whose commands are counted, unless count is nil.
func newClient(url string, count *commandCount) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		// The parser's message may repeat a password.
		return nil, errors.New("a Redis URL does not parse: redis://[user:password@]host:port/db is expected")
	}
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = ioTimeout, ioTimeout, ioTimeout
	options.ContextTimeoutEnabled = true
	options.DisableIdentity = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if count != nil {
		dial := redis.NewDialer(options)
		options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: conn, count: count}, nil
		}
	}
	return redis.NewClient(options), nil
}
