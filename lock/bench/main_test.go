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
	turn   = flag.Duration("turn", 500*time.Millisecond, "how long a turn lasts; four times as long where locks are held")
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

// turns lets every contestant have its turn in every round; in the next round another one is the first. A round of
// warming up comes before.
func (b *bench) turns(t *testing.T, names []string, take func(name string) (outcome, error)) map[string][]outcome {
	t.Helper()
	got := make(map[string][]outcome)
	for round := range *rounds + 1 {
		for i := range names {
			name := names[(i+round)%len(names)]
			o, err := take(name)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if round > 0 {
				got[name] = append(got[name], o)
			}
		}
	}
	return got
}
