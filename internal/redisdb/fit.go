package hotcopy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/ids"
	"seckill/internal/ratelimit"
	"seckill/model"
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
	said := ""
	if answer, ok := errors.AsType[redis.Error](err); ok {
		said = answer.Error()
	}
	if rest, ok := errors.AsType[halfway](err); ok {
		said += rest.Error()
	}
	for _, sign := range []string{"NOPERM", "The user executing the script", "ACL failure in script", "unknown command", "Unknown Redis command"} {
		if strings.Contains(said, sign) {
			return fmt.Errorf("%w: %w", ErrRights, err)
		}
	}
	return err
}

// everySpot is how many names are tried to find one for each primary of a Cluster. One
// that holds a single slot is missed once in 400 times.
const everySpot = 100_000

// Spots are numbers for each of which name gives a key on another primary: one for every
// primary that holds slots; of a single server just one.
func Spots(ctx context.Context, client redis.UniversalClient, name func(n int) string) ([]int, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return []int{0}, nil
	}
	var mu sync.Mutex
	missing := map[*redis.Client]bool{}
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		missing[node] = true
		return nil
	})
	var spots []int
	for n := 0; err == nil && len(missing) > 0 && n < everySpot; n++ {
		var node *redis.Client
		if node, err = cluster.MasterForKey(ctx, name(n)); missing[node] {
			delete(missing, node)
			spots = append(spots, n)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("ask the Cluster for its nodes: %w", err)
	}
	return spots, nil
}

// rehearsal begins the names of vouchers, users and senders that are none: what is kept
// under them is removed again.
const rehearsal = "seckill-start-check."

// Rehearse tries everything that the service will ask of Redis, on each primary: every
// script, as in a small sale with keys of its own that are removed again. To ask
// Redis what its user may do (ACL DRYRUN) would itself need a right that no service should
// have. A right that is missing is ErrRights. What cannot be tried now, because a server is away, is
// another error.
func Rehearse(ctx context.Context, client redis.UniversalClient, async bool) error {
	unique, err := ids.New()
	if err != nil {
		return fmt.Errorf("name a rehearsal: %w", err)
	}
	subscription := client.Subscribe(ctx, settledChannel, changeChannel, limitChannel)
	defer subscription.Close()
	_, err = subscription.ReceiveTimeout(ctx, callTimeout)
	failed := []error{err, client.Publish(ctx, changeChannel, rehearsal+unique).Err()}
	name := func(n int) string { return rehearsal + unique + "." + strconv.Itoa(n) }
	spots, err := Spots(ctx, client, func(n int) string { return headKey(name(n)) })
	failed = append(failed, err)
	for _, n := range spots {
		_, err := NewLimits(client).Take(ctx, []ratelimit.Ask{{Key: "{" + name(n) + "}", Emission: time.Millisecond, Capacity: time.Second}})
		// The scripts may be known already, and are then called by their names.
		failed = append(failed, err, client.Eval(ctx, "return 1", []string{headKey(name(n))}).Err())
		if async {
			r := rehearsed{Store: New(client, Options{LockKeys: !IsCluster(client)}), id: name(n)}
			failed = append(failed, r.sale(ctx))
		}
	}
	return Lacking(errors.Join(failed...))
}

// rehearsed is a sale in which nobody buys.
type rehearsed struct {
	*Store

	id string
}

func (r rehearsed) sale(ctx context.Context) error {
	now := time.Now()
	v := model.Voucher{
		ID: r.id, Stock: 3, Price: 1, Currency: "CNY", State: model.VoucherPublished, BeginAt: now.Add(-time.Hour), EndAt: now.Add(time.Hour),
	}
	order := func(user string) model.Order {
		return model.Order{ID: model.OrderID(user, r.id), VoucherID: r.id, UserID: user, Price: 1, Currency: "CNY", CreatedAt: now}
	}
	carried := model.Reservation{Order: order("b"), Epoch: 1}
	first := model.EpochRecord{VoucherID: r.id, Epoch: 1}
	second := model.EpochRecord{VoucherID: r.id, Epoch: 2, OpenEpoch: 1}
	defer func() {
		r.free(context.WithoutCancel(ctx), slices.Concat(epochKeys(r.id, 1), epochKeys(r.id, 2), []string{headKey(r.id)})...)
	}()
	for _, step := range []func() error{
		func() error { _, err := r.nodes(ctx); return err },
		func() error { return r.client.Get(ctx, canaryKey).Err() },
		func() error { return r.Close(ctx, first) },
		func() error { return r.Load(ctx, first, nil, nil) },
		func() error { return r.Load(ctx, first, []model.Order{order("a")}, []model.Reservation{carried}) },
		func() error { return r.Open(ctx, first, v, 0) },
		func() error { v.Revision++; _, err := r.Apply(ctx, v); return err },
		func() error { return r.Lower(ctx, r.id, 3, v.Revision+1) },
		func() error { return r.buy(ctx, order("c")) },
		func() error { _, err := r.Read(ctx, []string{r.id}); return err },
		func() error { _, _, err := r.OrderOf(ctx, r.id, "c"); return err },
		func() error { _, err := r.Due(ctx, r.id, 0, 1); return err },
		func() error { return r.Touch(ctx, []model.Reservation{carried}) },
		func() error { return r.EachProcessing(ctx, r.id, func(model.Order) error { return nil }) },
		func() error { return r.client.HLen(ctx, pendingKey(r.id, 1)).Err() },
		func() error { return r.client.ZCard(ctx, dueKey(r.id, 1)).Err() },
		func() error { return r.client.HLen(ctx, buyersKey(r.id, 1)).Err() },
		func() error { return r.Settle(ctx, []model.Order{carried.Order}) },
		func() error {
			_, err := r.Release(ctx, model.Release{OrderID: carried.ID, VoucherID: r.id, UserID: carried.UserID})
			return err
		},
		func() error { return r.buy(ctx, order("d")) }, // what is closed is looked at only once there is something
		func() error { return r.Close(ctx, second) },
	} {
		if err := step(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}

func (r rehearsed) buy(ctx context.Context, order model.Order) error {
	results, err := r.Reserve(ctx, []model.ReserveRequest{{OrderID: order.ID, VoucherID: r.id, UserID: order.UserID}})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return err
	}
	_, err = r.Confirm(ctx, []model.Reservation{results[0].Reservation})
	return err
}
