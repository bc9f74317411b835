package redisdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// ErrUnfit says that a Redis is something else than its URL says.
var ErrUnfit = errors.New("the URL does not fit the server")

// What a Redis may be in the place of the one that was meant.
var (
	errIsSentinel = fmt.Errorf("%w: it is a Sentinel: write redis+sentinel://host1,host2,host3/primary/0", ErrUnfit)
	errIsNode     = fmt.Errorf("%w: it is one node of a Redis Cluster, and takes a part of the keys only: write redis+cluster://host:port", ErrUnfit)
	errIsReplica  = fmt.Errorf("%w: it is a replica, which takes no writes: name the primary, or the Sentinels that know it", ErrUnfit)
	errNoCluster  = fmt.Errorf("%w: it is no Redis Cluster: write redis://host:port/0", ErrUnfit)
	errNoSentinel = fmt.Errorf("%w: it is a Redis itself and no Sentinel: write redis://host:port/0", ErrUnfit)
	errWantsTLS   = fmt.Errorf("%w: it ends the connection at the first words, as one does that wants TLS: write rediss:// in the place of redis://", ErrUnfit)
	errUnwatched  = fmt.Errorf("%w: the Sentinels watch no primary of that name", ErrUnfit)
	// ErrRights says that Redis refuses a command, a key or a channel.
	ErrRights = errors.New("the user of this Redis may not do what the service needs; the rights that it needs are in deployments/README.md, \"The rights in Redis\"")
)

// Inspect refuses a server that is none to sell from, and says what it is.
func Inspect(ctx context.Context, client redis.UniversalClient) error {
	switch client := client.(type) {
	case *redis.ClusterClient:
		err := client.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
		if err != nil && strings.Contains(err.Error(), "cluster support disabled") {
			return errNoCluster
		}
		return known(err, client.Options().TLSConfig != nil)
	case *redis.Client:
		info, err := client.Info(ctx, "server").Result()
		if err == nil {
			var replication string
			replication, err = client.Info(ctx, "replication").Result()
			info += replication
		}
		mode := cmp.Or(infoField(info, "redis_mode"), infoField(info, "server_mode")) // the latter is Valkey's
		switch {
		case err != nil:
			return known(err, client.Options().TLSConfig != nil)
		case mode == "sentinel":
			return errIsSentinel
		case mode == "cluster":
			return errIsNode
		case infoField(info, "role") == "slave":
			return errIsReplica
		}
	}
	return nil
}

// known gives what a wrong server answers a meaning. Secured says whether it was asked over TLS.
func known(err error, secured bool) error {
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	switch {
	case errors.Is(err, redis.Nil):
		return errUnwatched
	case strings.Contains(text, "unknown command 'sentinel'"):
		return errNoSentinel
	case strings.Contains(text, "accepted by sentinel instances"), strings.Contains(text, "unknown command 'select'"), strings.Contains(text, "unknown command 'cluster'"):
		return errIsSentinel
	case strings.Contains(text, "select is not allowed in cluster mode"):
		return errIsNode
	case secured && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("it gave no answer in time, as one does that speaks no TLS: %w", err)
	case !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE):
	case secured:
		return fmt.Errorf("it ends the connection behind the handshake, as one does that does not take the service's certificate: %w", err)
	default:
		return fmt.Errorf("%w (%w)", errWantsTLS, err)
	}
	return Lacking(err)
}

// Lacking adds ErrRights to the errors with which Redis says that its user lacks a right,
// or that it knows no such command.
func Lacking(err error) error {
	if err == nil {
		return nil
	}
	for _, sign := range []string{"NOPERM", "The user executing the script", "ACL failure in script", "unknown command", "Unknown Redis command"} {
		if strings.Contains(err.Error(), sign) {
			return fmt.Errorf("%w: %w", ErrRights, err)
		}
	}
	return err
}
