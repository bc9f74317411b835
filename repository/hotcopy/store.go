// Package hotcopy keeps in Redis what admits the buyers of a voucher in async mode. Every change is one Lua script,
// which Redis carries out as a whole; the scripts, in lua/, say what the keys hold. The package also holds what else
// the service keeps in Redis: the limits that instances share, the list of the instances, what they have counted, and
// the messages about vouchers that were changed. (Redis as a server is package redisdb.)
package hotcopy

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/redisdb"
	"seckill/internal/tracing"
	"seckill/model"
)

const (
	// callTimeout bounds one call to a hot copy, which takes well under a
	// millisecond: it is for a Redis that is stopped or starting.
	callTimeout = 3 * budget.Look
	// callOrders is how many orders one script call carries: it holds up other calls for some hundred microseconds, not
	// for longer. The largest command has some 150 KB, and no Redis can be told to take less than 1 MB.
	callOrders = 100
	// groupCopies is how many copies one command is about, and groupArgs how many arguments about
	// them it has, unless they are about one: it holds up other calls for some two milliseconds.
	groupCopies = 64
	groupArgs   = 3 * callOrders
	// pipelineCalls is how many script calls share a pipeline where there may be
	// any number, so that their replies need not all be held in memory.
	pipelineCalls = 20
	// maxKnown bounds the memory of known epochs; forgetting one costs a call that is sent twice.
	maxKnown = 10_000
)

// Options are what a deployment decides about its hot copies.
type Options struct {
	// Identity is used in place of the run id and the replication id of a Redis that has none: the one inside this
	// process, which is another server at each start. Empty: Redis tells.
	Identity string
	// LockKeys lets Reserve look whether another program holds the user's lock. The locks must live on the same Redis,
	// and it must not be a Cluster, where they are in other slots.
	LockKeys bool
	// Trace records what is reserved, settled, released and loaded; nil records nothing.
	Trace *tracing.Tracer
	// Slack is added to each limit of time, for tests: their machine may be busy with others.
	Slack time.Duration
}

// Store keeps in Redis what admits the buyers of each voucher: the marks of the users who have taken a unit, and the
// orders that wait to be persisted. No key counts the units that are left: they are what the database can sell of the
// stock, without those taken, so that no count can drift. The keys of a copy carry its epoch, and a head names the
// epoch that is open; a missing key is a closed copy, never a sold-out one.
//
// An error that wraps model.ErrUnknownOutcome leaves open whether something was done; every call may be repeated.
type Store struct {
	client  redis.UniversalClient
	options Options
	scripts scripts

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

// Node names the server on which a voucher's copy lies, so that calls to different servers
// can be separated. It asks no server. Empty: there is only one, or it is not known.
func (s *Store) Node(voucherID string) string { return redisdb.NodeOf(s.client, headKey(voucherID)) }

// voucherFields are the fields of a head that come from the voucher.
func voucherFields(v model.Voucher) []any {
	early := ""
	if v.Early.From != nil {
		early = strconv.FormatInt(v.Early.From.UnixMicro(), 10)
	}
	return []any{
		"early_us", early, "rules", rulesOf(v),
		"revision", v.Revision, "stock", v.Stock, "price", v.Price, "currency", v.Currency,
		"begin_us", v.BeginAt.UnixMicro(), "end_us", v.EndAt.UnixMicro(), "vstate", string(v.State),
	}
}

// rules are those of a fair sale.
type rules struct {
	Groups   model.Groups `json:",omitempty"`
	Early    model.Early  `json:",omitzero"`
	Cooldown model.Window `json:",omitzero"`  // scripts look for its name
	Waitlist bool         `json:",omitempty"` // head.lua looks for its name
}

// rulesOf are a voucher's rules as a head has them.
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

// prefix begins the names of a voucher's keys: the version of their layout, and the voucher
// as hash tag, so that they share a slot of a Cluster.
func prefix(voucherID string) string { return "seckill:v1:{" + voucherID + "}:" }

func headKey(voucherID string) string { return prefix(voucherID) + "head" }

func buyersKey(voucherID string, epoch int64) string { return epochKeys(voucherID, epoch)[0] }

func pendingKey(voucherID string, epoch int64) string { return epochKeys(voucherID, epoch)[1] }

func dueKey(voucherID string, epoch int64) string { return epochKeys(voucherID, epoch)[2] }

func closedKey(voucherID string, epoch int64) string { return epochKeys(voucherID, epoch)[3] }

// epochKeys are the keys of one epoch, in the order of head.lua.
func epochKeys(voucherID string, epoch int64) []string {
	these := prefix(voucherID) + strconv.FormatInt(epoch, 10) + ":"
	return []string{these + "buyers", these + "pending", these + "due", these + "closed"}
}
