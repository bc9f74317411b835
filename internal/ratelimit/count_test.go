package ratelimit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// told is what the instances share, as the test tells it, and what it was asked.
type told struct {
	mu      sync.Mutex
	verdict Verdict
	away    error
	asked   []Ask
}

func (s *told) take(_ context.Context, asks []Ask) ([]Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return nil, s.away
	}
	s.asked = append(s.asked, asks...)
	verdicts := make([]Verdict, len(asks))
	for i := range verdicts {
		verdicts[i] = s.verdict
	}
	return verdicts, nil
}

func (s *told) says(verdict Verdict, away error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdict, s.away = verdict, away
}

// beside runs a test of one limiter, which asks for every event, beside what the instances share.
func beside(t *testing.T, test func(t *testing.T, l *Limiter, s *told)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log check.Log
		s := &told{}
		shared := NewShared(s.take, prometheus.NewRegistry(), log.Logger())
		defer shared.Close(context.Background())
		l := New("test", 0, shared)
		check.Must(t, l.Set(model.Rate{Events: smallest - 1, Per: time.Hour}, "scope"))
		test(t, l, s)
	})
}

// TestWhatIsRefusedIsNotCounted: a sender whose turn others take again and again, and who waits each time as it is
// told, has used nothing of its own quota.
func TestWhatIsRefusedIsNotCounted(t *testing.T) {
	t.Parallel()
	beside(t, func(t *testing.T, l *Limiter, s *told) {
		s.says(Verdict{Wait: time.Second}, nil)
		for range 2 * smallest {
			check.Equal(t, "the wait", l.Take(t.Context(), "sender"), time.Second)
			<-time.After(time.Second)
			synctest.Wait()
		}
		s.says(Verdict{}, nil)
		check.Equal(t, "the wait once its turn has come", l.Take(t.Context(), "sender"), 0)
	})
}

// TestAnOutageIsReported: what an instance let pass while nothing was shared counts for all instances afterwards.
func TestAnOutageIsReported(t *testing.T) {
	t.Parallel()
	beside(t, func(t *testing.T, l *Limiter, s *told) {
		s.says(Verdict{}, errors.New("connection refused"))
		for range 4 {
			check.Equal(t, "the wait during the outage", l.Take(t.Context(), "sender"), 0)
		}
		s.says(Verdict{}, nil)
		<-time.After(2 * budget.Look)
		synctest.Wait()
		check.Equal(t, "the wait after it", l.Take(t.Context(), "sender"), 0)
		if len(s.asked) != 1 || s.asked[0].Used != 4 {
			t.Errorf("asked %+v, want one question that reports 4 events", s.asked)
		}
		check.Equal(t, "the next wait", l.Take(t.Context(), "sender"), 0)
		check.Equal(t, "what the next question reports", s.asked[1].Used, 0)
	})
}

// TestWhoHangsUpSaysNothingOfRedis: a client that is gone is limited as any other, and the next one asks.
func TestWhoHangsUpSaysNothingOfRedis(t *testing.T) {
	t.Parallel()
	beside(t, func(t *testing.T, l *Limiter, s *told) {
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		check.Equal(t, "the wait of who is gone", l.Take(gone, "sender"), 0)
		check.Equal(t, "the next one's", l.Take(t.Context(), "another"), 0)
		check.Equal(t, "questions", len(s.asked), 2)
	})
}

// TestAnotherRateIsCountedByItself: what the instances share of the rate before says nothing about a new one, whose
// events are worth another time.
func TestAnotherRateIsCountedByItself(t *testing.T) {
	t.Parallel()
	beside(t, func(t *testing.T, l *Limiter, s *told) {
		l.Take(t.Context(), "sender")
		check.Must(t, l.Set(model.Rate{Events: smallest - 2, Per: time.Hour}, "scope"))
		l.Take(t.Context(), "sender")
		if len(s.asked) != 2 || s.asked[0].Key == s.asked[1].Key {
			t.Errorf("asked %+v, want two names", s.asked)
		}
	})
}
