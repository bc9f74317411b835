package repository

import (
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/model"
)

const (
	// copyTimeout bounds one call to a hot copy, which takes well under a
	// millisecond: it is for a Redis that is stopped or starting.
	copyTimeout = 3 * time.Second
	// copyOrders is how many orders one script call carries: it holds up
	// everybody else for some hundred microseconds, not for longer.
	copyOrders = 100
	// copyCalls is how many script calls share a pipeline where there may be
	// any number, so that their replies need not all be held in memory.
	copyCalls = 20
	// copyKept is how long a copy outlives its sale (or its last change): for
	// late releases and questions about orders, after which the database
	// answers alone.
	copyKept = 7 * 24 * time.Hour
	// copyLoading is how long a load may take. The keys of one that is given up are
	// freed at once; this is for those whose process died and whose voucher nobody
	// rebuilds any more.
	copyLoading = time.Hour
	// tombstoneKept is how long a closed order's admission is refused if it
	// arrives late: far above any connection's patience.
	tombstoneKept = 10 * time.Minute
	// maxKnownEpochs bounds the memory of known epochs; forgetting one costs a
	// call that is sent twice.
	maxKnownEpochs = 10_000
)

// HotCopyOptions are what a deployment decides about its hot copies.
type HotCopyOptions struct {
	// Identity stands for the run id and the replication id of a Redis that has
	// none: the one inside this process, which is another server at each start.
	// Empty: Redis tells.
	Identity string
	// LockKeys lets Reserve look whether somebody else holds the user's lock.
	// The locks must live on the same Redis, and it must not be a Cluster,
	// where they are in other slots.
	LockKeys bool
}

// HotCopies keeps in Redis what admits the buyers of each voucher: who has
// taken a unit, and the orders that wait to be persisted. Nothing counts the
// units that are left: they are what the database can sell of the stock, without
// those taken, so that no count can drift. The keys of a copy carry its epoch, and a head names the epoch that
// is open; a missing key is a closed copy, never a sold-out one.
//
// An error that wraps model.ErrUnknownOutcome leaves open whether something was
// done; every call may be repeated.
type HotCopies struct {
	client  redis.UniversalClient
	options HotCopyOptions
	scripts copyScripts

	mu     sync.Mutex
	epochs map[string]int64 // by voucher, as last heard of
}

// NewHotCopies works over the client given.
func NewHotCopies(client redis.UniversalClient, options HotCopyOptions) *HotCopies {
	return &HotCopies{client: client, options: options, scripts: newCopyScripts(), epochs: make(map[string]int64)}
}

// known is the epoch a voucher's head had when it was last heard of; 0 when it
// never was, which no copy has.
func (h *HotCopies) known(voucherID string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.epochs[voucherID]
}

func (h *HotCopies) learn(voucherID string, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.epochs) >= maxKnownEpochs {
		clear(h.epochs)
	}
	h.epochs[voucherID] = epoch
}

// copyPrefix begins the names of a voucher's keys: the version of their layout,
// and the voucher as hash tag, so that they share a slot of a Cluster.
func copyPrefix(voucherID string) string { return "seckill:v1:{" + voucherID + "}:" }

func copyHead(voucherID string) string { return copyPrefix(voucherID) + "head" }

func copyBuyers(voucherID string, epoch int64) string { return copyKey(voucherID, epoch, "buyers") }

func copyPending(voucherID string, epoch int64) string { return copyKey(voucherID, epoch, "pending") }

func copyKey(voucherID string, epoch int64, noun string) string {
	return copyPrefix(voucherID) + strconv.FormatInt(epoch, 10) + ":" + noun
}

// copyKeys are the keys of one epoch, in the order of head.lua.
func copyKeys(voucherID string, epoch int64) []string {
	return []string{
		copyBuyers(voucherID, epoch), copyPending(voucherID, epoch),
		copyKey(voucherID, epoch, "due"), copyKey(voucherID, epoch, "closed"),
	}
}

// userLockKey is where other programs and the lock package hold a user's lock.
func userLockKey(userID string) string { return "lock:order:" + userID }

// copyFields are the fields of a head that come from the voucher.
func copyFields(v model.Voucher) []any {
	return []any{
		"revision", v.Revision, "stock", v.Stock, "price", v.Price, "currency", v.Currency,
		"begin_us", v.BeginAt.UnixMicro(), "end_us", v.EndAt.UnixMicro(), "vstate", string(v.State),
	}
}

// copyUntil is how long a voucher's copy is kept, in ms since 1970.
func copyUntil(v model.Voucher) int64 { return v.EndAt.Add(copyKept).UnixMilli() }
