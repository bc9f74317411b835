package lock_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/lock"
)

// deaf is a Redis in a bubble that refuses everything that is said to it. It notes when it was asked to subscribe.
type deaf struct {
	*check.Network

	talks sync.WaitGroup
	mu    sync.Mutex
	asked []time.Time
}

func (d *deaf) serve() {
	for {
		conn, err := d.Accept()
		if err != nil {
			return
		}
		d.talks.Go(func() { d.talk(conn) })
	}
}

func (d *deaf) talk(conn net.Conn) {
	defer conn.Close()
	for said := bufio.NewReader(conn); ; {
		var words, length int
		if _, err := fmt.Fscanf(said, "*%d\r\n", &words); err != nil {
			return
		}
		var command string
		for n := range words {
			if _, err := fmt.Fscanf(said, "$%d\r\n", &length); err != nil {
				return
			}
			word := make([]byte, length+len("\r\n"))
			if _, err := io.ReadFull(said, word); err != nil {
				return
			}
			if n == 0 {
				command = strings.ToLower(string(word[:length]))
			}
		}
		if command == "subscribe" {
			d.mu.Lock()
			d.asked = append(d.asked, time.Now())
			d.mu.Unlock()
		}
		if _, err := io.WriteString(conn, "-NOPERM this user may not run it\r\n"); err != nil {
			return
		}
	}
}

// Redis refuses to subscribe: the pause before the next connection doubles each time, up to a second, so that a waiter
// does not open a connection after the other. Guard: heard in subscriptions.receive.
func TestRefusedSubscriptionIsTriedLessAndLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deaf{Network: check.NewNetwork()}
		d.talks.Go(d.serve)
		// With a name instead of a number the client would ask the resolver, outside the bubble.
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", Dialer: d.Dial, Protocol: 2, DisableIdentity: true})
		store := lock.NewRedisStore(client)
		watch := store.Watch("k", func() {})
		time.Sleep(5 * time.Second)
		watch.Stop()
		check.Must(t, store.Close())
		check.Must(t, client.Close())
		check.Must(t, d.Close())
		d.talks.Wait()
		var pauses []time.Duration
		for i := range d.asked[1:] {
			pauses = append(pauses, d.asked[i+1].Sub(d.asked[i]))
		}
		check.Equal(t, "pauses", fmt.Sprint(pauses), "[20ms 40ms 80ms 160ms 320ms 640ms 1s 1s 1s]")
	})
}
