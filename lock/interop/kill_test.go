//go:build interop

//part:interop

package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// roleHolder, with a Redis URL and a lock's name, makes this test binary take the lock and hold it until it is killed.
const roleHolder = "hold-a-lock"

func hold(url, name string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return fmt.Errorf("hold %s: %w", name, err)
	}
	locks := lock.New(lock.NewRedisStore(redis.NewClient(options)), lock.WatchdogLease(shortLease))
	if _, err := locks.Mutex(name).Lock(context.Background(), lock.Wait(0)); err != nil {
		return err
	}
	_, _ = os.Stdout.WriteString("held\n")
	select {}
}

// TestKilledJava: the lock of a killed JVM expires, and Go, which waited, takes it over.
func TestKilledJava(t *testing.T) {
	t.Parallel()
	b := setup(t, shortLease)
	name := name(t)
	b.java.thread("victim").lock(t, name)
	waiting := begin(t, b.locks.Mutex(name), lock.Wait(check.Deadline))
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 1)

	b.java.kill()
	b.wantHolds(t, name, 1) // until its lease is over
	lease := waiting.lease(t)
	mustUnlock(t, lease)
	b.wantHolds(t, name, 0)
}

// TestKilledGo: the same with the roles exchanged.
func TestKilledGo(t *testing.T) {
	t.Parallel()
	b := setup(t, shortLease)
	name := name(t)
	victim := exec.CommandContext(t.Context(), os.Args[0], roleHolder, testserver.SharedRedis(t), name)
	victim.Stderr = os.Stderr
	stdout := check.Value(victim.StdoutPipe())(t)
	check.Must(t, victim.Start())
	if lines := bufio.NewScanner(stdout); !lines.Scan() || lines.Text() != "held" {
		t.Fatalf("the holder said %q, want held", lines.Text())
	}
	waiting := b.java.thread("next").begin(t, "try", "plain", name, check.Deadline.Milliseconds(), -1)
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 1)

	check.Must(t, victim.Process.Kill())
	_ = victim.Wait()       // killed
	b.wantHolds(t, name, 1) // until its lease is over
	waiting.want(t, "true")
	b.java.thread("next").unlock(t, name)
	b.wantHolds(t, name, 0)
}
