// Package embedded holds what the service brings along when nothing is configured: a Redis and a queue in this process,
// and a data directory with the secret that signs tokens. It is for trying out, not for selling.
package embedded

import (
	"crypto/rand"
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Redis is a Redis server inside this process, on a free port of the loopback interface. Its random password is in this
// process alone: any other caller gets NOAUTH. It forgets all when closed, and runs Lua slowly (some 1,700 a second).
type Redis struct {
	server   *miniredis.Miniredis
	password string
}

// StartRedis starts an empty server.
func StartRedis() (*Redis, error) {
	server, password := miniredis.NewMiniRedis(), rand.Text()
	server.RequireAuth(password)
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	server.ClockTTL(true) // without a running clock no key would expire, nor a dead holder's lock
	return &Redis{server: server, password: password}, nil
}

// URL is where clients find the server, with its password: redis://:password@127.0.0.1:port/0.
func (r *Redis) URL() string { return "redis://:" + r.password + "@" + r.server.Addr() + "/0" }

// Close stops the server and its connections. It is safe to call twice.
func (r *Redis) Close() { r.server.Close() }
