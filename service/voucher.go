package service

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"

	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/internal/lane"
	"seckill/model"
	"seckill/service/sale"
	"seckill/service/sale/cache"
)

// Vouchers looks after what is sold.
type Vouchers struct {
	VoucherDeps

	lists *lists
}

// VoucherDeps is what Vouchers works with.
type VoucherDeps struct {
	Store    VoucherStore
	Stock    Stock           // SyncStock, or a worker's
	Cache    *cache.Vouchers // this instance's
	Announce sale.Announce
	// Selling refuses changes in another mode's database, whose hot copies this instance could not tell.
	Selling sale.Selling
	Codes   *Codes // nil: nothing can be free
	Log     *slog.Logger
}

// NewVouchers makes the service.
func NewVouchers(deps VoucherDeps) *Vouchers {
	s := &Vouchers{VoucherDeps: deps}
	s.lists = newLists(s.list)
	return s
}

// SyncStock is the stock of the order mode sync: that of the database alone.
type SyncStock struct{ VoucherStore } // of which Audit is the stock's

// Created is Stock's.
func (SyncStock) Created(context.Context, string) {}

// Patched is Stock's.
func (SyncStock) Patched(context.Context, model.Voucher) {}

// Change is Stock's.
func (s SyncStock) Change(
	ctx context.Context, id string, change model.StockChange, once model.Idempotency,
) (model.Voucher, error) {
	return s.ChangeStock(ctx, id, change, once)
}

// Rebuild is Stock's.
func (SyncStock) Rebuild(context.Context, string, string) error {
	return model.Conflict("In the order mode sync there is no hot copy to rebuild.")
}

func (s *Vouchers) changeable(id string) error {
	if !model.ValidID(id) {
		return model.NotFound("voucher")
	}
	return s.Selling()
}

// Get returns a voucher as it is now. Only administrators see drafts and archived ones.
func (s *Vouchers) Get(ctx context.Context, id string, admin bool) (model.Voucher, error) {
	if !model.ValidID(id) {
		return model.Voucher{}, model.NotFound("voucher")
	}
	v, err := s.Cache.Read(ctx, id)
	if err != nil {
		return model.Voucher{}, err
	}
	if !admin && !v.Buyable() {
		return model.Voucher{}, model.NotFound("voucher")
	}
	return v, nil
}

// List returns one page of vouchers, newest first: to the public as it was a moment ago, to administrators as it is.
func (s *Vouchers) List(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error) {
	if q.All {
		return s.list(ctx, q)
	}
	return s.lists.get(ctx, q)
}

func (s *Vouchers) list(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error) {
	return s.Cache.List(ctx, q, s.Store.List)
}

// Shelf returns one page of all vouchers, sorted for people, and how many there are of each phase.
func (s *Vouchers) Shelf(ctx context.Context, q model.VoucherQuery) (shelf model.Shelf, err error) {
	if shelf, err = s.Store.Shelf(ctx, q); err != nil {
		return shelf, err
	}
	shelf.VoucherPage, err = s.Cache.List(ctx, model.VoucherQuery{}, func(context.Context, model.VoucherQuery) (model.VoucherPage, error) {
		return shelf.VoucherPage, nil
	})
	return shelf, err
}

// Create makes a voucher, which is on sale from its BeginAt without further calls.
func (s *Vouchers) Create(
	ctx context.Context, v model.VoucherFields, by string, once model.Idempotency,
) (model.Voucher, error) {
	if v.State == "" {
		v.State = model.VoucherPublished
	}
	if err := model.JoinInvalid(v.Check(), s.free(&v.Price)); err != nil {
		return model.Voucher{}, err
	}
	id, err := ids.New()
	if err != nil {
		return model.Voucher{}, err
	}
	created, err := s.Store.Create(ctx, id, v, by, once)
	s.lists.change()
	if err == nil {
		s.Stock.Created(ctx, created.ID)
	}
	return created, err
}

// Patch changes the fields given; every instance obeys within a second.
func (s *Vouchers) Patch(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error) {
	if err := s.changeable(id); err != nil {
		return model.Voucher{}, err
	}
	if err := model.JoinInvalid(patch.Check(), s.free(patch.Price)); err != nil {
		return model.Voucher{}, err
	}
	if err := s.unsold(ctx, id, patch); err != nil {
		return model.Voucher{}, err
	}
	v, err := s.Store.Patch(ctx, id, patch)
	if err == nil {
		s.Stock.Patched(ctx, v)
	}
	s.changed(ctx, id)
	if err != nil {
		return model.Voucher{}, err
	}
	return s.Cache.Shown(ctx, v), nil
}

// free refuses the price 0 where no codes are made: an order that costs nothing gets its code where it is made.
func (s *Vouchers) free(price *int64) error {
	if price == nil || *price != 0 || s.Codes != nil {
		return nil
	}
	return model.Invalid("body.price", "must not be 0 here: without SECKILL_CODE_KEY the orders would get no codes")
}

// unsold refuses other rules for a voucher with reserved units, whose orders without rows the store looks for.
func (s *Vouchers) unsold(ctx context.Context, id string, patch model.VoucherPatch) error {
	if patch.Groups == nil && patch.Early == nil && patch.Cooldown == nil && patch.Waitlist == nil &&
		patch.Allocation == nil {
		return nil
	}
	now, err := s.Cache.Read(ctx, id)
	if err != nil {
		return err
	}
	changed := now.VoucherFields
	patch.Apply(&changed)
	if now.Stock != now.Remaining && !changed.SameRules(&now.VoucherFields) {
		return model.RulesFixed()
	}
	return nil
}

// ChangeStock changes the total ever offered, also in the middle of a sale.
func (s *Vouchers) ChangeStock(
	ctx context.Context, id string, change model.StockChange, once model.Idempotency,
) (model.Voucher, error) {
	if err := s.changeable(id); err != nil {
		return model.Voucher{}, err
	}
	if err := change.Check(); err != nil {
		return model.Voucher{}, err
	}
	v, err := s.Stock.Change(ctx, id, change, once)
	s.changed(ctx, id)
	if err != nil || once.Key != "" { // a repeated key gets the first answer again, not what is left by then
		return v, err
	}
	return s.Cache.Shown(ctx, v), nil
}

// Stats counts a voucher's units and orders.
func (s *Vouchers) Stats(ctx context.Context, id string) (model.Stats, error) {
	if !model.ValidID(id) {
		return model.Stats{}, model.NotFound("voucher")
	}
	return s.Cache.Stats(ctx, id, s.Store.Stats)
}

// Takings are what a voucher's orders cost together.
func (s *Vouchers) Takings(ctx context.Context, id string) (model.Takings, error) {
	return s.Store.Takings(ctx, id)
}

// Since is what has come since an instant, of all vouchers.
func (s *Vouchers) Since(ctx context.Context, at time.Time) (model.Day, error) {
	return s.Store.Since(ctx, at)
}

// Audit checks that a voucher's units and orders add up.
func (s *Vouchers) Audit(ctx context.Context, id string) (model.Audit, error) {
	if !model.ValidID(id) {
		return model.Audit{}, model.NotFound("voucher")
	}
	return s.Stock.Audit(ctx, id)
}

// Rebuild closes a voucher's hot copy for an administrator, and has it rebuilt. CONFLICT in sync: there is none.
func (s *Vouchers) Rebuild(ctx context.Context, id, adminID string) error {
	if err := s.Stock.Rebuild(ctx, id, adminID); err != nil {
		return err
	}
	s.changed(ctx, id)
	return nil
}

// changed drops a voucher's entries and this instance's lists, also after failures: a COMMIT may have happened.
func (s *Vouchers) changed(ctx context.Context, id string) {
	s.lists.change()
	s.Cache.Drop(id)
	s.Announce.Tell(ctx, s.Log, id)
}

const (
	listTimeout  = 3 * budget.Look // of one reading
	listReaders  = 2               // read at once. Made-up cursors must leave connections and time to others
	maxListQueue = 256             // wait, for budget.Look each
	// maxLists pages are kept, of maxListBytes at the most: more than are read in budget.Glance.
	maxLists     = 1000
	maxListBytes = 16 << 20
	voucherBytes = 400 // beside its texts
)

// lists are the pages of vouchers shown to the public a moment ago. Concurrent requests share one query.
type lists struct {
	flights singleflight.Group
	readers *lane.Group[model.VoucherQuery, *list]

	mu      sync.Mutex
	kept    *simplelru.LRU[model.VoucherQuery, *list]
	bytes   int
	changed time.Time // pages asked for before this time are void
}

type list struct {
	page  model.VoucherPage
	bytes int
	asked time.Time // before the query was sent, on this machine's monotonic clock
	told  time.Time // after its answer had come
}

func newLists(read func(context.Context, model.VoucherQuery) (model.VoucherPage, error)) *lists {
	l := &lists{}
	l.readers = lane.New(func(ctx context.Context, asked []model.VoucherQuery) ([]*list, error) {
		made := &list{asked: time.Now()}
		var err error
		made.page, err = read(ctx, asked[0])
		made.told = time.Now()
		return []*list{made}, err
	}, lane.Options{Writers: listReaders, MaxBatch: 1, MaxQueue: maxListQueue, Timeout: listTimeout})
	// NewLRU fails only for a size of 0.
	l.kept, _ = simplelru.NewLRU(maxLists, func(_ model.VoucherQuery, gone *list) { l.bytes -= gone.bytes })
	return l
}

// get returns a page as it was at most budget.Glance before the call, with the phases and the time of now.
func (l *lists) get(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error) {
	if _, err := model.ParseCursor(q.Cursor); err != nil {
		return model.VoucherPage{}, err // it needs no reader
	}
	q.Limit = model.PageSize(q.Limit)
	oldest := l.oldest()
	l.mu.Lock()
	held, ok := l.kept.Get(q)
	l.mu.Unlock()
	if ok && !held.asked.Before(oldest) {
		return held.at(time.Now(), q.Phase), nil
	}
	for {
		select {
		case result := <-l.flights.DoChan(fmt.Sprint(q), func() (any, error) { return l.load(q) }): //nolint:contextcheck // it is shared by all who wait
			if result.Err != nil {
				return model.VoucherPage{}, lane.Undone("The vouchers could not be listed in time.", result.Err)
			}
			// A reading that was under way may have begun too early. The next one has not.
			if read, ok := result.Val.(*list); ok && !read.asked.Before(oldest) {
				return read.at(time.Now(), q.Phase), nil
			}
		case <-ctx.Done():
			return model.VoucherPage{}, lane.Undone("The vouchers could not be listed in time.", ctx.Err())
		}
	}
}

// oldest is when a page must have been asked for to answer a request that comes now.
func (l *lists) oldest() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if oldest := time.Now().Add(-budget.Glance); oldest.After(l.changed) {
		return oldest
	}
	return l.changed
}

func (l *lists) change() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = time.Now()
}

func (l *lists) keep(q model.VoucherQuery, read *list) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.Remove(q)
	l.kept.Add(q, read)
	for l.bytes += read.bytes; l.bytes > maxListBytes; {
		l.kept.RemoveOldest()
	}
}

func (l *lists) load(q model.VoucherQuery) (*list, error) {
	patient, enough := context.WithTimeout(context.Background(), budget.Look)
	defer enough()
	queued, err := l.readers.Submit(patient, q)
	if err != nil {
		return nil, err
	}
	read, err := queued.Wait(context.Background()) // a reader drops it after budget.Look, and reads for listTimeout
	if err != nil {
		return nil, err
	}
	for _, v := range read.page.Items {
		read.bytes += voucherBytes + len(v.Title) + len(v.Description)
	}
	l.keep(q, read)
	return read, nil
}

// at is the page as of now: the reading's clock plus what has passed, without vouchers of another phase by now.
func (l *list) at(now time.Time, phase model.Phase) model.VoucherPage {
	page := model.VoucherPage{Items: slices.Clone(l.page.Items), NextCursor: l.page.NextCursor}
	passed := now.Sub(l.told)
	for i, v := range page.Items {
		page.Items[i] = v.At(v.ServerTime.Add(passed))
	}
	page.Items = slices.DeleteFunc(page.Items, func(v model.Voucher) bool { return phase != "" && v.Phase != phase })
	return page
}
