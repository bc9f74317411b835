package bench

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	check  = flag.Bool("check", false, "fail when a target is missed")
	rounds = flag.Int("rounds", 5, "how often each contestant has its turn in each workload")
	turn   = flag.Duration("turn", 400*time.Millisecond, "how long a turn lasts; three times as long where locks are held")
)

// TestMain runs the benchmark, or, started by it, one of several processes that compete for a lock.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := child(role, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// TestPeers runs the workloads one after the other and prints a table for each, and in the end which targets are met.
func TestPeers(t *testing.T) {
	b := &bench{addr: startRedis(t)}
	t.Run("solo", b.solo)
	t.Run("keys", b.keys)
	t.Run("hot", b.hot)
	t.Run("requests", b.requests)
	t.Run("processes", b.processes)
	t.Run("handover", b.handover)
	t.Run("subscriptions", b.subscriptions)
	t.Run("synced", b.synced)
	t.Run("cutoff", b.cutoff)
	b.printTargets()
	if *check && b.missed() {
		t.Error("a target is missed")
	}
}

// bench is one run.
type bench struct {
	addr    string // of the Redis that everybody uses
	targets []target
}

// turns lets every contestant have its turn of that length in every round; in the next round another one is the
// first. A short round of warming up comes before.
func (b *bench) turns(t *testing.T, names []string, length time.Duration, take func(name string, length time.Duration) (outcome, error)) map[string][]outcome {
	t.Helper()
	for _, name := range names {
		if _, err := take(name, length/8); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	got := make(map[string][]outcome)
	for round := range *rounds {
		for i := range names {
			name := names[(i+round)%len(names)]
			o, err := take(name, length)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got[name] = append(got[name], o)
		}
	}
	return got
}
