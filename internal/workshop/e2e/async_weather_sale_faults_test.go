//go:build faults

//part:weather

package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/remote"
	"seckill/model"
)

// sale is the load of one voucher, and remembers when each request was made and
// how it was answered.
type sale struct {
	voucher string
	early   bool // strangers have to wait
	apis    []*process
	share   int // times as long pauses: the load of many sales is that of two

	mu       sync.Mutex
	next     int // user
	requests []request
	last     time.Time // of a 202
}

func newSale(v model.Voucher, apis []*process, share int) *sale {
	return &sale{voucher: v.ID, early: v.Early.From != nil, apis: apis, next: int(time.Now().UnixMilli()%1e9) * 10_000, share: share}
}

// request is one request to buy.
type request struct {
	user, order     string // the order of a 202
	asked, answered time.Time
	said, id        string
	odd             bool // the contract knows no such answer
}

// ask makes a request, at each instance in turn, and reports whether the user
// was told for good. Under every trouble the contract leaves 202, 503 and, while
// an order of the user is being settled, 429 and ALREADY_ORDERED; for a stranger to whom the sale has not begun, NOT_STARTED.
func (s *sale) ask(t *testing.T, user string, attempt int, stranger bool) (final bool) {
	t.Helper()
	r, a := request{user: user, asked: time.Now()}, s.apis[attempt%len(s.apis)].app
	if stranger = stranger && s.early; stranger {
		a = a.stranger()
	}
	got, err := a.Place(t, s.voucher, user)
	r.answered, r.id = time.Now(), got.Header.Get("X-Request-Id")
	switch code := got.Code(); {
	case err != nil:
		r.said = "nothing: " + err.Error()
	case got.Status == http.StatusAccepted:
		r.said, r.order, r.odd = "202", remote.Decode[model.Order](t, got).ID, stranger
	default:
		r.said = fmt.Sprintf("%d %s", got.Status, bytes.TrimSpace(got.Body))
		final = code == model.CodeAlreadyOrdered || stranger && code == model.CodeNotStarted
		r.odd = code != model.CodeUnavailable && code != model.CodeLockBusy && !final
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	if r.order != "" && r.answered.After(s.last) {
		s.last = r.answered
	}
	return final || r.order != ""
}

// user is a new one.
func (s *sale) user() (name string, attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return s.apis[0].user(s.next), s.next
}

// rush lets new users buy, some at a time, who ask until they are told, and
// besides them, however slow the answers are, ten a second who ask once: so that
// a silence is seen as one. Some of those are strangers. It returns when stop is closed and all is answered.
func (s *sale) rush(t *testing.T, stop <-chan struct{}) {
	t.Helper()
	const parallel = 4
	share := time.Duration(s.share)
	pause, beat := share*20*time.Millisecond, share*100*time.Millisecond //nolint:durationcheck // a number of times
	waits := func(d time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	var load sync.WaitGroup
	for range parallel {
		load.Go(func() {
			for going := true; going; {
				user, attempt := s.user()
				for ; going && !s.ask(t, user, attempt, false); attempt++ {
					going = waits(pause)
				}
				going = going && waits(pause)
			}
		})
	}
	for waits(beat) {
		load.Go(func() {
			user, attempt := s.user()
			s.ask(t, user, attempt, attempt%4 == 0)
		})
	}
	load.Wait()
}

// those are the requests for which something holds.
func (s *sale) those(holds func(request) bool) []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r request) bool { return !holds(r) })
}

// promised are the requests that were answered 202.
func (s *sale) promised() []request {
	return s.those(func(r request) bool { return r.order != "" })
}

// sold is when a 202 was answered last.
func (s *sale) sold() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// span is a time from one instant to another.
type span struct{ from, to time.Time }

// story is what a user heard, and when.
func (s *sale) story(user string, since time.Time) (lines []string) {
	for _, r := range s.those(func(r request) bool { return r.user == user }) {
		if len(lines) == fewest {
			return append(lines, "and so on")
		}
		lines = append(lines, fmt.Sprintf("asked at %v, answered at %v: %s %s", r.asked.Sub(since).Round(time.Millisecond), r.answered.Sub(since).Round(time.Millisecond), r.said, r.order))
	}
	return lines
}
