package bench

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscriptions counts the subscription connections of one process with 1,000 waiters for 1,000 locks, and what is
// left behind afterwards.
func (b *bench) subscriptions(t *testing.T) {
	const count = 1000
	client := redis.NewClient(&redis.Options{Addr: b.addr})
	defer client.Close()
	holder, waiters := openOurs(b.addr), openOurs(b.addr)
	releases := make([]func() error, count)
	for i := range releases {
		_, release, err := holder.acquire(t.Context(), "many:"+strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		releases[i] = release
	}
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			_, release, err := waiters.acquire(t.Context(), "many:"+strconv.Itoa(i))
			if err == nil {
				err = release()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	deadline := time.After(20 * time.Second) // it takes a fraction of one
	for tick := time.Tick(5 * time.Millisecond); ; {
		channels, err := client.PubSubChannels(t.Context(), "*many:*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(channels) == count {
			break
		}
		select {
		case <-tick:
		case <-deadline:
			t.Fatalf("%d channels are subscribed, want %d", len(channels), count)
		}
	}
	list, err := client.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	if err != nil {
		t.Fatal(err)
	}
	connections := strings.Count(list, "\n")
	start := time.Now()
	for _, release := range releases {
		if err := release(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	took := time.Since(start)
	if err := holder.close(); err != nil {
		t.Error(err)
	}
	if err := waiters.close(); err != nil {
		t.Error(err)
	}
	left, err := client.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := client.Keys(t.Context(), "*many:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	tokens, latches := 0, 0
	for _, key := range keys {
		switch {
		case strings.HasPrefix(key, "redisson_lock_token:"):
			tokens++
		case strings.HasPrefix(key, "redisson_unlock_latch:"): // of an unlock that was slow: it expires after 30 s
			latches++
		}
	}
	table("1,000 waiters for 1,000 locks in one process", [][]string{
		{"subscription connections", "all released and taken over in", "connections left", "keys left", "of them token counters", "latches of 30 s"},
		{strconv.Itoa(connections), millis(took), strconv.Itoa(strings.Count(left, "\n")), strconv.Itoa(len(keys)), strconv.Itoa(tokens), strconv.Itoa(latches)},
	})
	b.target(connections == 1, "1,000 waiters on 1,000 keys: one subscription connection", "%d", connections)
	locks := len(keys) - tokens - latches
	b.target(left == "" && locks == 0, "nothing left behind but what expires", "%d connections, %d locks", strings.Count(left, "\n"), locks)
}
