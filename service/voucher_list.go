package service

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"

	"seckill/internal/lane"
	"seckill/model"
)

const (
	// listMaxAge is the age from which a page that was read answers no request: short
	// enough that a change is seen within a second although reading takes time too, and
	// long enough that a crowd costs the database three queries a second.
	listMaxAge = 300 * time.Millisecond
	// listTimeout bounds one reading, its wait for a reader included.
	listTimeout = 3 * time.Second
	// listReaders read at once. Every cursor is another query: whoever makes up cursors
	// must leave connections to administrators, and the database's time to those who buy.
	listReaders = 2
	// listPatience bounds the wait for a reader, and maxListQueue the queries that wait.
	listPatience = time.Second
	maxListQueue = 256
	// maxLists pages are kept, of maxListBytes at the most: more than are read in listMaxAge.
	maxLists     = 1000
	maxListBytes = 16 << 20
	// voucherBytes is what a voucher takes beside its texts.
	voucherBytes = 400
)

// lists are the pages of vouchers that the public was shown a moment ago. Concurrent
// requests for one page share one query.
type lists struct {
	read    func(context.Context, model.VoucherQuery) (model.VoucherPage, error)
	flights singleflight.Group
	readers chan struct{}

	mu      sync.Mutex
	kept    *simplelru.LRU[model.VoucherQuery, *list]
	bytes   int
	queue   int
	changed time.Time // pages asked for before this time are void
}

// list is a page as it was read.
type list struct {
	page  model.VoucherPage
	bytes int
	asked time.Time // before the query was sent, on this machine's monotonic clock
	told  time.Time // after its answer had come
}

func newLists(read func(context.Context, model.VoucherQuery) (model.VoucherPage, error)) *lists {
	l := &lists{read: read, readers: make(chan struct{}, listReaders)}
	l.kept, _ = simplelru.NewLRU(maxLists, func(_ model.VoucherQuery, gone *list) { l.bytes -= gone.bytes }) // fails for a size of 0
	return l
}

// get returns a page as it was at most listMaxAge before the call, with the phases and
// the time of now.
func (l *lists) get(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error) {
	if _, err := model.ParseCursor(q.Cursor); err != nil {
		return model.VoucherPage{}, err // it needs no reader
	}
	q.Limit = model.PageSize(q.Limit)
	oldest := l.oldest()
	if held := l.held(q); held != nil && !held.asked.Before(oldest) {
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
	if oldest := time.Now().Add(-listMaxAge); oldest.After(l.changed) {
		return oldest
	}
	return l.changed
}

// change voids every page: this instance has changed a voucher.
func (l *lists) change() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = time.Now()
}

func (l *lists) held(q model.VoucherQuery) *list {
	l.mu.Lock()
	defer l.mu.Unlock()
	held, _ := l.kept.Get(q)
	return held
}

// keep remembers a page in place of the one before.
func (l *lists) keep(q model.VoucherQuery, read *list) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.Remove(q)
	l.kept.Add(q, read)
	for l.bytes += read.bytes; l.bytes > maxListBytes; {
		l.kept.RemoveOldest()
	}
}

// load reads a page for all requests that wait for it.
func (l *lists) load(q model.VoucherQuery) (*list, error) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer func() { <-l.readers }()
	read := &list{asked: time.Now()}
	var err error
	if read.page, err = l.read(ctx, q); err != nil {
		return nil, err
	}
	read.told = time.Now()
	for _, v := range read.page.Items {
		read.bytes += voucherBytes + len(v.Title) + len(v.Description)
	}
	l.keep(q, read)
	return read, nil
}

// enter takes a reader.
func (l *lists) enter() error {
	busy := model.Unavailable("Too many lists are being read.", nil)
	if !l.queued(1) {
		return busy
	}
	defer l.queued(-1)
	enough := time.NewTimer(listPatience)
	defer enough.Stop()
	select {
	case l.readers <- struct{}{}:
		return nil
	case <-enough.C:
		return busy
	}
}

// queued counts the queries that wait for a reader, and reports false when they are too many.
func (l *lists) queued(change int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue+change > maxListQueue {
		return false
	}
	l.queue += change
	return true
}

// at is the page as of now, on the clock that decides the windows: that of the reading,
// plus what has passed since. A voucher that has left the phase asked for since is left out.
func (l *list) at(now time.Time, phase model.Phase) model.VoucherPage {
	page := model.VoucherPage{Items: slices.Clone(l.page.Items), NextCursor: l.page.NextCursor}
	passed := now.Sub(l.told)
	for i, v := range page.Items {
		page.Items[i] = v.At(v.ServerTime.Add(passed))
	}
	page.Items = slices.DeleteFunc(page.Items, func(v model.Voucher) bool { return phase != "" && v.Phase != phase })
	return page
}
