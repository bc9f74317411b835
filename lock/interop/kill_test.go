//go:build interop

package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
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
	b.wantRenewals(t, name, 1)
	waiting := begin(t, b.locks.Mutex(name), lock.Wait(patience))
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 1)

	b.java.kill()
	left, start := b.ttl(t, name), time.Now()
	if left <= 0 {
		t.Fatalf("the lock of the killed JVM has a time to live of %v, want some", left)
	}
	lease, at := waiting.lease(t)
	wantTakeOver(t, at.Sub(start), left)
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
	stdout, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(stdout); !lines.Scan() || lines.Text() != "held" {
		t.Fatalf("the holder said %q, want held", lines.Text())
	}
	b.wantRenewals(t, name, 1)
	waiting := b.java.thread("next").begin(t, "try", "plain", name, patience.Milliseconds(), -1)
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 1)

	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // killed
	left, start := b.ttl(t, name), time.Now()
	if left <= 0 {
		t.Fatalf("the lock of the killed process has a time to live of %v, want some", left)
	}
	at := waiting.want(t, "true")
	wantTakeOver(t, at.Sub(start), left)
	b.java.thread("next").unlock(t, name)
	b.wantHolds(t, name, 0)
}
