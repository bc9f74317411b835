// Package hotcopy keeps in Redis what admits a voucher's buyers in async mode. Each change is one Lua script, carried
// out as a whole; the scripts in lua/ say what the keys hold. It also has shared limits, the list of instances, what
// they counted, and messages about changed vouchers. (Redis as a server is package redisdb.)
package hotcopy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/internal/ratelimit"
	"seckill/internal/redisdb"
	"seckill/internal/tracing"
	"seckill/model"
)

const (
	// callTimeout bounds one call to a hot copy, which takes far less than a millisecond but while Redis restarts.
	callTimeout = 3 * budget.Look
	// callOrders is how many orders a script call carries: some hundred µs, 150 KB; every Redis takes 1 MB.
	callOrders = 100
	// groupCopies and groupArgs bound a command about several copies: it holds up other calls for some 2 ms.
	groupCopies = 64
	groupArgs   = 3 * callOrders
	// pipelineCalls share a pipeline where there may be any number, so that not all replies are in memory.
	pipelineCalls = 20
	// maxKnown bounds the memory of known epochs; forgetting one costs a call that is sent twice.
	maxKnown = 10_000
)

// Options are what a deployment decides about its hot copies.
type Options struct {
	// Identity stands for the ids of a Redis that has none: inside this process, new at each start. Empty: Redis tells.
	Identity string
	// LockKeys lets Reserve see another program's lock of the user, on the same Redis and no Cluster.
	LockKeys bool
	// Trace records what is reserved, settled, released and loaded; nil records nothing.
	Trace *tracing.Tracer
	// Slack is added to each limit of time, for tests: their machine may be busy with others.
	Slack time.Duration
}

// Store keeps in Redis what admits each voucher's buyers: marks of users with a unit, and orders to be persisted. No
// key counts units that are left: they are what the database can sell less those taken, so that no count drifts. Keys
// carry the copy's epoch, a head names the open one; a missing key is a closed copy, never a sold-out one.
//
// Every call may be repeated. After model.ErrUnknownOutcome something may have been done.
type Store struct {
	client  redis.UniversalClient
	options Options
	scripts map[string]script

	mu     sync.Mutex
	epochs map[string]int64 // by voucher, as last heard of
}

// New works over the client given.
func New(client redis.UniversalClient, options Options) *Store {
	return &Store{client: client, options: options, scripts: newScripts(), epochs: make(map[string]int64)}
}

// known is the epoch that a voucher's head had when it was last heard of; 0 when it never was, which no copy has.
func (s *Store) known(voucherID string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epochs[voucherID]
}

func (s *Store) learn(voucherID string, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.epochs) >= maxKnown {
		clear(s.epochs)
	}
	s.epochs[voucherID] = epoch
}

// Node names the server of a voucher's copy, without asking one. Empty: there is only one, or it is unknown.
func (s *Store) Node(voucherID string) string { return redisdb.NodeOf(s.client, headKey(voucherID)) }

func voucherFields(v model.Voucher) []any {
	early := ""
	if v.Early.From != nil {
		early = strconv.FormatInt(v.Early.From.UnixMicro(), 10)
	}
	return []any{
		"early_us", early, "rules", rulesOf(v),
		"revision", v.Revision, "stock", v.Stock + v.WrittenOff, "price", v.Price, "currency", v.Currency,
		"begin_us", v.BeginAt.UnixMicro(), "end_us", v.EndAt.UnixMicro(), "vstate", string(v.State),
	}
}

type rules struct {
	Groups   model.Groups `json:",omitempty"`
	Early    model.Early  `json:",omitzero"`
	Cooldown model.Window `json:",omitzero"`  // scripts look for its name
	Waitlist bool         `json:",omitempty"` // head.lua looks for its name
}

func rulesOf(v model.Voucher) string {
	r := rules{Groups: v.Groups, Early: v.Early, Cooldown: v.Cooldown, Waitlist: v.Waitlist}
	text, err := json.Marshal(r)
	switch {
	case err != nil:
		return "?" // which no reading takes for rules: better no sale than one to everybody
	case string(text) == "{}":
		return ""
	}
	return string(text)
}

// keptUntil is how long a voucher's copy is kept, in ms since 1970.
func keptUntil(v model.Voucher) int64 { return v.EndAt.Add(budget.Week).UnixMilli() }

// prefix begins the names of a voucher's keys: the layout's version, and the voucher as tag, for one slot.
func prefix(voucherID string) string { return "seckill:v1:{" + voucherID + "}:" }

func headKey(voucherID string) string                 { return prefix(voucherID) + "head" }
func buyersKey(voucherID string, epoch int64) string  { return epochKeys(voucherID, epoch)[0] }
func pendingKey(voucherID string, epoch int64) string { return epochKeys(voucherID, epoch)[1] }
func dueKey(voucherID string, epoch int64) string     { return epochKeys(voucherID, epoch)[2] }

// epochKeys are the keys of one epoch, in the order of head.lua.
func epochKeys(voucherID string, epoch int64) []string {
	these := prefix(voucherID) + strconv.FormatInt(epoch, 10) + ":"
	return []string{these + "buyers", these + "pending", these + "due", these + "closed"}
}

// rehearsal begins the names of vouchers, users and senders that are none: what is kept under them is removed again.
const rehearsal = "seckill-start-check."

// Rehearse tries all that the service asks of Redis, on each primary, in a small sale whose keys it removes: ACL DRYRUN
// would need a right that no service should have. redisdb.ErrRights: one is missing. Other errors: a server is away.
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
	spots, err := redisdb.Spots(ctx, client, func(n int) string { return headKey(name(n)) })
	failed = append(failed, err)
	for _, n := range spots {
		_, err := NewLimits(client).Take(ctx,
			[]ratelimit.Ask{{Key: "{" + name(n) + "}", Emission: time.Millisecond, Capacity: time.Second}})
		// The scripts may be known already, and are then called by their names.
		failed = append(failed, err, client.Eval(ctx, "return 1", []string{headKey(name(n))}).Err())
		if async {
			r := rehearsed{Store: New(client, Options{LockKeys: !redisdb.IsCluster(client)}), id: name(n)}
			failed = append(failed, r.sale(ctx))
		}
	}
	return redisdb.Lacking(errors.Join(failed...))
}

type rehearsed struct {
	*Store

	id string
}

func (r rehearsed) sale(ctx context.Context) error {
	now := time.Now()
	v := model.Voucher{
		ID: r.id, VoucherFields: model.VoucherFields{
			Stock: 3, Price: 1, Currency: "CNY", State: model.VoucherPublished, BeginAt: now.Add(-time.Hour),
			EndAt: now.Add(time.Hour),
		},
	}
	order := func(user string) model.Order {
		return model.Order{
			ID: model.OrderID(user, r.id), VoucherID: r.id, UserID: user, Price: 1, Currency: "CNY", CreatedAt: now,
		}
	}
	carried := model.Reservation{Order: order("b"), Epoch: 1}
	first := model.EpochRecord{VoucherID: r.id, Epoch: 1}
	second := model.EpochRecord{VoucherID: r.id, Epoch: 2, OpenEpoch: 1}
	defer func() {
		r.free(context.WithoutCancel(ctx), slices.Concat(epochKeys(r.id, 1), epochKeys(r.id, 2),
			[]string{headKey(r.id)})...)
	}()
	for _, step := range []func() error{
		func() error { _, err := redisdb.Nodes(ctx, r.client); return err },
		func() error { return r.client.Get(ctx, redisdb.CanaryKey).Err() },
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
		func() error {
			_, err := r.handOver(ctx, r.id, []model.Release{{
				ID: 1, OrderID: order("a").ID, VoucherID: r.id, UserID: "a", HeirID: order("e").ID, HeirUserID: "e",
			}})
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
