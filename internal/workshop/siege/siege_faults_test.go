//go:build faults

//part:siege

package siege_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"seckill/internal/workshop/testserver"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(attackVariable); name != "" {
		os.Exit(attackFromHere(name))
	}
	testserver.Main(m)
}

const (
	// acceptedLoss is how much of the accepted orders one attacker may cost.
	acceptedLoss = 0.20
	// slower is how many times its quiet value the p99 of an accepted order may be.
	slower = 5
	// memoryLimit is what the service may take at most.
	memoryLimit = 512 << 20
	// backWithin is how long after the end of an attack the sale is as it was before.
	backWithin = 5 * time.Second
	// longPhase is from which length of a phase the figures are held to these limits. A shorter one measures too
	// little, on a machine that may be busy with other tests.
	longPhase = 8 * time.Second
)

// One attacker at a time does not stop a sale. Long version: make siege.
//
//nolint:paralleltest // what it measures is not for a machine that is busy with other tests
func TestSiege(t *testing.T) {
	phase := time.Duration(number(t, "SIEGE_SECONDS", 1)) * time.Second
	modes := strings.Fields(text("SIEGE_MODES", "sync async"))
	chosen := strings.Fields(text("SIEGE_ATTACKS", "lists waits idle"))
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			town := build(t, mode)
			capacity := town.capacity(phase)
			rate := number(t, "SIEGE_RATE", max(1, capacity/2))
			t.Logf("%s: %d orders/s with %d buyers at once; the sale runs at %d/s", mode, capacity, closedBuyers, rate)
			var rows []row
			for _, a := range attacks {
				if a.only != "" && a.only != mode || !slices.Contains(chosen, a.name) && chosen[0] != "all" {
					continue
				}
				rows = append(rows, town.besiege(a, rate, phase))
			}
			t.Log("\n" + table(rows))
			town.conserved()
			for _, r := range rows {
				r.check(t, phase)
			}
		})
	}
}

// row is what one attack did.
type row struct {
	attack              string
	quiet, siege, after figures
	attackers           outcome
	memory              int64         // the most the service had, in bytes
	back                time.Duration // after the end of the attack, until the sale was as before; negative is never
}

// check holds a row to the limits.
func (r row) check(t *testing.T, phase time.Duration) {
	t.Helper()
	if r.siege.accepted == 0 || r.after.accepted == 0 {
		t.Errorf("%s: %d orders were accepted during the attack, and %d after it", r.attack, r.siege.accepted, r.after.accepted)
	}
	if r.memory > memoryLimit {
		t.Errorf("%s: the service took %d MiB, more than %d", r.attack, r.memory>>20, memoryLimit>>20)
	}
	if phase < longPhase {
		return
	}
	if kept := r.siege.rate() / r.quiet.rate(); kept < 1-acceptedLoss {
		t.Errorf("%s: %.0f %% of the orders were accepted", r.attack, 100*kept)
	}
	if limit := slower * r.quiet.p99(); r.siege.p99() > limit {
		t.Errorf("%s: the p99 is %v, more than %v", r.attack, r.siege.p99(), limit)
	}
	if r.back < 0 || r.back > backWithin {
		t.Errorf("%s: the sale is not as before within %v of the end", r.attack, backWithin)
	}
}

// table is for the log and the README.
func table(rows []row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| attack\t| requests/s\t| answered\t| accepted/s: quiet\t| attack\t| kept\t| p50 quiet\t| attack\t| p99 quiet\t| attack\t| refused\t| MiB\t| back after\t|")
	fmt.Fprintln(w, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range rows {
		back := "never"
		if r.back >= 0 {
			back = r.back.String()
		}
		fmt.Fprintf(w, "| %s\t| %.0f\t| %s\t| %.0f\t| %.0f\t| %.0f %%\t| %s\t| %s\t| %s\t| %s\t| %d\t| %d\t| %s\t|\n",
			r.attack, r.attackers.rate(), r.attackers.answers(), r.quiet.rate(), r.siege.rate(), 100*r.siege.rate()/r.quiet.rate(),
			ms(r.quiet.p50()), ms(r.siege.p50()), ms(r.quiet.p99()), ms(r.siege.p99()), r.siege.others, r.memory>>20, back)
	}
	if err := w.Flush(); err != nil {
		return err.Error()
	}
	return b.String()
}

func ms(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) + " ms"
}

func text(variable, short string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return short
}

func number(t *testing.T, variable string, short int) int {
	t.Helper()
	n, err := strconv.Atoi(text(variable, strconv.Itoa(short)))
	if err != nil || n < 1 {
		t.Fatalf("%s is no positive number: %v", variable, err)
	}
	return n
}
