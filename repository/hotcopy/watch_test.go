package hotcopy_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// A request that was given up, or a stop, does not keep the news of what it had committed back.
func TestNewsOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	url := testserver.SharedRedis(t)
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()

	t.Run("of a voucher", func(t *testing.T) {
		t.Parallel()
		changes, id := hotcopy.NewVoucherChanges(openRedis(t, url)), newID(t)
		told := listen(t, func(ctx context.Context, told func(string), ready func()) {
			changes.Watch(ctx, told, func(returned string) { told("a unit of " + returned) }, ready, func() {})
		})
		check.Must(t, changes.Announce(gone, id))
		told.await(t, id)
		check.Must(t, changes.AnnounceReturn(gone, id))
		told.await(t, "a unit of "+id)
	})
	t.Run("of a limit", func(t *testing.T) {
		t.Parallel()
		limits, deployment := hotcopy.NewLimits(openRedis(t, url)), newID(t)
		told := listen(t, limits.Watch)
		check.Must(t, limits.Announce(gone, deployment))
		told.await(t, deployment)
	})
}

// An instance knows at once that it hears nothing, whether the server is dead or only silent, and that it hears again.
func TestDeafInstancesKnow(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*testserver.Server) (back func()){
		"dead":   func(s *testserver.Server) func() { s.Kill(); return s.Start },
		"silent": func(s *testserver.Server) func() { s.Pause(); return s.Resume },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			client := openRedis(t, server.URL())
			changes, id := hotcopy.NewVoucherChanges(client), newID(t)
			deaf := make(chan struct{}, 1000)
			told := listen(t, func(ctx context.Context, told func(string), ready func()) {
				heard := func() { told("again"); ready() }
				changes.Watch(ctx, told, told, heard, func() { deaf <- struct{}{} })
			})
			told.await(t, "again")
			<-deaf // before it was subscribed
			check.Eventually(t, "it has asked three times, where nothing was to be heard", func() bool {
				_, calls, _ := strings.Cut(client.Info(t.Context(), "commandstats").Val(), "cmdstat_ping:calls=")
				return calls >= "3"
			})
			check.Equal(t, "times it was deaf, though the server has answered", len(deaf), 0)
			back := away(server)
			check.Receive(t, "that nothing is heard", deaf)
			back()
			told.await(t, "again")
			check.Must(t, changes.Announce(t.Context(), id))
			told.await(t, id)
		})
	}
}

// A hot copy tells by itself of units that may be for sale again.
func TestCopiesTellOfReturnedUnits(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		changes := hotcopy.NewVoucherChanges(s.client)
		told := listen(t, func(ctx context.Context, told func(string), ready func()) {
			changes.Watch(ctx, func(string) {}, told, ready, func() {})
		})
		var last model.Reservation
		for n := range s.v.Stock {
			last = s.buy(fmt.Sprint("user", n))
		}
		s.release(last)
		told.await(t, s.v.ID)
		s.release(s.buy("bob"))
		told.await(t, s.v.ID)
		s.rebuild(s.epoch+1, s.epoch, nil, nil)
		told.await(t, s.v.ID)
		s.release(s.buy("carol")) // of units that are left, nobody has to be told
		end := newID(t)
		check.Must(t, changes.AnnounceReturn(t.Context(), end))
		for news := ""; news != end; {
			if news = check.Receive(t, "the end", told); news == s.v.ID {
				t.Error("told of a unit though units were left")
			}
		}
	})
}

// news is what a subscription was told, in order.
type news chan string

// listen watches until the end of the test, and returns once it is subscribed.
func listen(t *testing.T, watch func(ctx context.Context, told func(string), ready func())) news {
	t.Helper()
	told, ready := make(news, 1000), make(chan struct{}, 10)
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { watch(ctx, func(message string) { told <- message }, func() { ready <- struct{}{} }) })
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	<-ready
	return told
}

// await passes over what other tests announce.
func (n news) await(t *testing.T, message string) {
	t.Helper()
	for check.Receive(t, "news of "+message, n) != message {
		continue
	}
}
