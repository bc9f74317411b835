//go:build faults

//part:sales

package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// TestFairness measures who gets units when 20,000 buyers press at once at two instances: the first, whoever they are.
// `make fairness` starts it; docs/fairness.md has the figures. Chance from a fixed seed deals users, instances and
// order, so a share that depends on a user's id or the instance is a defect. Verdicts are over counts: no clock.
func TestFairness(t *testing.T) {
	t.Parallel()
	for _, mode := range []model.OrderMode{model.ModeSync, model.ModeAsync} {
		s := onServers(t).with(settings{
			"SECKILL_ORDER_MODE": string(mode),
			"SECKILL_NATS_URL":   testserver.SharedNATS(t),
		})
		instances := []*app{start(t, s), start(t, s)}
		chance := rand.New(rand.NewPCG(40, 40))
		crowd := gather(instances, 20_000, chance)
		voucher := instances[0].onSale(t, len(crowd)/4)
		press(t, voucher.ID, crowd, 512)
		first := correlation(crowd)
		t.Logf("%s, 20,000 buyers, 5,000 units: correlation of arrival and success %.4f, attempts told to come again %d", mode, first, attempts(crowd)-len(crowd))
		check.That(t, first >= 0.9, "%s: the correlation of arrival and success is %.4f", mode, first)
		independent(t, fmt.Sprintf("%s, one sale", mode), crowd, traits(crowd))

		// One batch decides a small sale, so only whole sales count. Who is first within a millisecond gets no verdict.
		var small, most []*caller
		const sales, fifths = 200, 5
		var burst [fifths]int
		for range sales {
			few := gather(instances, 40, chance)
			press(t, instances[0].onSale(t, 10).ID, few, len(few))
			small, most = append(small, few...), append(most, mostWins(few)...)
			for _, c := range few {
				if c.won {
					burst[(int(c.arrived)-1)*fifths/len(few)]++
				}
			}
		}
		what := fmt.Sprintf("%s, %d sales of one batch", mode, sales)
		t.Logf("%s, 40 buyers, 10 units: units by fifth of the burst %v", what, burst)
		independent(t, what, small, map[string]trait{"the user's id": byID(small)})
		independent(t, what, most, map[string]trait{"the instance": {2, func(c *caller) int { return c.instance }}})
	}
}

// TestFairnessOfADraw has 20,000 buyers enter a draw of 5,000 units: nothing about them matters, not even when they
// come. A verdict is red beyond five standard deviations; chance exceeds three once in 370 times.
func TestFairnessOfADraw(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	instances := []*app{start(t, s), start(t, s)}
	crowd := gather(instances, 20_000, rand.New(rand.NewPCG(40, 41)))
	voucher := instances[0].Create(t, map[string]any{"stock": len(crowd) / 4, "allocation": "draw"})
	press(t, voucher.ID, crowd, 512)
	instances[0].closeSale(t, voucher.ID)
	instances[1].awaitDrawn(t, voucher.ID)
	winners := map[string]bool{}
	for _, order := range instances[0].rows(t, voucher.ID) {
		winners[order.UserID] = true
	}
	for _, c := range crowd {
		c.won = winners[c.user]
	}
	check.Equal(t, "winners", len(winners), len(crowd)/4)
	rank := correlation(crowd)
	won, lost := float64(len(winners)), float64(len(crowd)-len(winners))
	sigma := math.Sqrt((won + lost + 1) / (3 * won * lost))
	t.Logf("a draw, 20,000 buyers, 5,000 units: correlation of arrival and success %.4f, %.1f σ", rank, rank/sigma)
	check.That(t, math.Abs(rank) <= 5*sigma, "the correlation of arrival and success is %.4f", rank)
	independent(t, "a draw", crowd, traits(crowd))
}

// mostWins is one for each instance: the one at which more have won has won.
func mostWins(crowd []*caller) []*caller {
	lead := 0
	for _, c := range crowd {
		if c.won {
			lead += 1 - 2*c.instance
		}
	}
	if lead == 0 {
		return nil
	}
	return []*caller{{instance: 0, won: lead > 0}, {instance: 1, won: lead < 0}}
}

type caller struct {
	user     string
	instance int
	app      *app
	attempts int
	arrived  int64 // the how-manyeth request that was written, of the attempt that was answered for good
	won      bool
}

func gather(instances []*app, count int, chance *rand.Rand) []*caller {
	crowd := make([]*caller, count)
	ids := chance.Perm(count)
	for n := range crowd {
		a := n % len(instances)
		crowd[n] = &caller{
			user:     fmt.Sprintf("%s%06d-%04x", instances[0].prefix, ids[n], chance.IntN(1<<16)),
			instance: a, app: instances[a],
		}
	}
	chance.Shuffle(count, func(i, j int) { crowd[i], crowd[j] = crowd[j], crowd[i] })
	return crowd
}

func press(t *testing.T, voucherID string, crowd []*caller, connections int) {
	tokens := make([]string, len(crowd))
	for n, c := range crowd {
		tokens[n] = c.app.as(t, c.user)
	}
	for _, c := range crowd[:min(len(crowd), 8)] { // whoever looks at the page has an instance read the voucher
		c.app.Call(t, http.MethodGet, "/vouchers/"+voucherID, "", nil)
	}
	var next, arrivals atomic.Int64
	check.Volley(connections, func(int) {
		for n := int(next.Add(1)) - 1; n < len(crowd); n = int(next.Add(1)) - 1 {
			c := crowd[n]
			traced := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
				WroteRequest: func(httptrace.WroteRequestInfo) { c.arrived = arrivals.Add(1) },
			})
			for again := true; again; {
				c.attempts++
				got, err := api.Send(traced, c.app.Client, http.MethodPost,
					c.app.URL+"/api/v1/vouchers/"+voucherID+"/seckill", tokens[n], nil)
				again = api.Again(cmp.Or(err, got.Err()))
				c.won = got.Sells() || got.Code() == model.CodeAlreadyOrdered
				check.That(t, again || c.won || got.Code() == model.CodeSoldOut, "%s: %d %s", c.user, got.Status,
					got.Body)
			}
		}
	})
}

func attempts(crowd []*caller) (sum int) {
	for _, c := range crowd {
		sum += c.attempts
	}
	return sum
}

// correlation is the rank-biserial one of arrival and success (Cureton 1956): 1: first win, 0: chance, -1: last win.
func correlation(crowd []*caller) float64 {
	byArrival := slices.SortedFunc(slices.Values(crowd),
		func(a, b *caller) int { return cmp.Compare(a.arrived, b.arrived) })
	winners, losers, right := 0, 0, 0
	for _, c := range byArrival {
		if c.won {
			winners++
		} else {
			losers++
			right += winners // who came before this loser
		}
	}
	return 2*float64(right)/float64(winners*losers) - 1
}

type trait struct {
	classes int
	class   func(c *caller) int
}

const classes = 10

func traits(crowd []*caller) map[string]trait {
	return map[string]trait{
		"the user's id": byID(crowd), "the instance": {2, func(c *caller) int { return c.instance }},
		"the place in a batch": {classes, func(c *caller) int { return int(c.arrived) % classes }},
	}
}

func byID(crowd []*caller) trait {
	rank := map[*caller]int{}
	for n, c := range slices.SortedFunc(slices.Values(crowd), func(a, b *caller) int { return strings.Compare(a.user, b.user) }) {
		rank[c] = n
	}
	return trait{classes, func(c *caller) int { return rank[c] * classes / len(crowd) }}
}

// independent is red when a buyer's share depends on a trait.
func independent(t *testing.T, what string, crowd []*caller, traits map[string]trait) {
	t.Helper()
	for name, of := range traits {
		won, all := make([]float64, of.classes), make([]float64, of.classes)
		winners := 0.0
		for _, c := range crowd {
			class := of.class(c)
			all[class]++
			if c.won {
				won[class]++
				winners++
			}
		}
		square, share := 0.0, winners/float64(len(crowd))
		for class := range won {
			expected := share * all[class]
			square += (won[class]-expected)*(won[class]-expected)/expected +
				(won[class]-expected)*(won[class]-expected)/(all[class]-expected)
		}
		z := deviations(square, float64(of.classes-1))
		t.Logf("%s, by %s: χ² %.1f of %d degrees, %.1f σ", what, name, square, of.classes-1, z)
		check.That(t, z <= 5, "%s: the share depends on %s: %v of %v won", what, name, won, all)
	}
}

// deviations is how far a χ² is from chance, in standard deviations (Wilson and Hilferty 1931).
func deviations(square, degrees float64) float64 {
	spread := 2 / (9 * degrees)
	return (math.Cbrt(square/degrees) - (1 - spread)) / math.Sqrt(spread)
}
