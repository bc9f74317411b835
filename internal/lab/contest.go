package lab

import (
	"context"
	"fmt"
	"strings"

	"seckill/repository"
)

// Contest is what two ways to sell come to with so many writers on one row.
type Contest struct {
	Writers     int     `json:"writers"`
	Optimistic  float64 `json:"optimistic"`  // operations answered per second
	Pessimistic float64 `json:"pessimistic"` // likewise
}

// contestOperations are those of all writers of a contest together.
const contestOperations = 400

// contests measures optimistic against pessimistic. Without MySQL there are none.
func (e *environment) contests(ctx context.Context, o Options) (all []Contest) {
	if e.site.DSN == "" {
		return nil
	}
	rate := func(n, writers int, how repository.StockStrategy) float64 {
		r := runner{Options: o, env: e, strategy: strategyNamed("stock: " + string(how)), number: len(o.rows) + n}
		r.Workers, r.Operations = writers, max(contestOperations/writers, 1)
		out := r.row()
		r.bounded(ctx, &out, r.free)
		return out.Throughput
	}
	for i, writers := range []int{2, 8, 64} {
		all = append(all, Contest{
			writers, rate(2*i, writers, repository.StockOptimistic), rate(2*i+1, writers, repository.StockPessimistic),
		})
	}
	return all
}

// sayWhoWon says it in sentences under the table.
func (r Report) sayWhoWon(w *strings.Builder) {
	for i, c := range r.Contests {
		switch i {
		case 0:
			fmt.Fprint(w, "\nOptimistic against pessimistic, operations a second: ")
		default:
			fmt.Fprint(w, ", ")
		}
		winner := "optimistic"
		if c.Pessimistic > c.Optimistic {
			winner = "pessimistic"
		}
		fmt.Fprintf(w, "%d writers %.0f : %.0f (%s)", c.Writers, c.Optimistic, c.Pessimistic, winner)
	}
	if r.Contests != nil {
		fmt.Fprintln(w, ".")
	}
	polling, woken := r.named("setnx, no watchdog"), r.named("setnx store")
	if polling.Throughput > 0 && woken.Throughput > 0 {
		winner := "messages"
		if polling.Throughput > woken.Throughput {
			winner = "polling"
		}
		fmt.Fprintf(w, "Polling every %s against messages, operations a second: %.0f : %.0f (%s); commands for each: %.1f : %.1f; the longest wait: %s : %s.\n",
			spinEvery, polling.Throughput, woken.Throughput, winner, polling.Commands, woken.Commands, short(polling.Longest), short(woken.Longest))
	}
}

// named is the row of that name; an empty one when it is not there.
func (r Report) named(name string) (found Row) {
	for _, row := range r.Rows {
		if row.Name == name {
			found = row
		}
	}
	return found
}
