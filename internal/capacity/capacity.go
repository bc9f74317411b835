// Package capacity says how many servers a sale needs. Its figures are those that the benchmark has measured: microseconds of
// CPU by process, in costs.json, which `make bench-scale KEEP=on` writes.
package capacity

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"seckill/model"
)

//go:embed costs.json
var recorded []byte

// Costs are what was measured.
type Costs struct {
	Commit  string                      `json:"commit"`
	CPU     string                      `json:"cpu"`
	Orders  map[model.OrderMode][]Order `json:"orders"` // by the vouchers that were on sale at once, ascending
	Refusal float64                     `json:"refusal"`
	// Second is by how much an order costs more, over all processes, with each doubling of the instances.
	Second float64 `json:"second"`
}

// Order is what an order costs while so many vouchers are on sale, in microseconds of CPU.
type Order struct {
	Vouchers int     `json:"vouchers"`
	Product  float64 `json:"product"`
	MariaDB  float64 `json:"mariadb"`
	Redis    float64 `json:"redis"`
	NATS     float64 `json:"nats"`
}

// Recorded are the figures of the newest record.
func Recorded() (Costs, error) {
	var costs Costs
	if err := json.Unmarshal(recorded, &costs); err != nil {
		return Costs{}, fmt.Errorf("read the measured costs: %w", err)
	}
	return costs, nil
}

// Question is what a plan is asked for.
type Question struct {
	Mode     model.OrderMode
	Orders   float64 // a second that are accepted
	Refusals float64 // a second besides
	Vouchers int     // on sale at once
	Cores    int     // of a machine
	Load     float64 // how busy its cores may be, up to 1
}

// Need is what one kind of process needs.
type Need struct {
	Process string
	Cost    float64 // microseconds of CPU an order
	Cores   float64 // that it keeps busy
	Servers int
	Each    int // cores of each server
}

// Plan is the answer to a Question.
type Plan struct {
	Question

	Needs []Need
}

// Plan says what a sale needs. It is VALIDATION when the question is none.
func (c Costs) Plan(q Question) (Plan, error) {
	switch {
	case q.Orders < 0 || q.Refusals < 0 || q.Orders+q.Refusals <= 0 || math.IsInf(q.Orders+q.Refusals, 0) || math.IsNaN(q.Orders+q.Refusals):
		return Plan{}, model.Invalid("buyers", "must be positive")
	case q.Vouchers < 1:
		return Plan{}, model.Invalid("vouchers", "must be at least 1")
	case q.Cores < 1:
		return Plan{}, model.Invalid("cores", "must be at least 1")
	case !(q.Load > 0 && q.Load <= 1):
		return Plan{}, model.Invalid("load", "must be above 0 and at most 1")
	}
	measured, ok := c.Orders[q.Mode]
	if !ok {
		return Plan{}, model.Invalid("mode", "%q was not measured", q.Mode)
	}
	cost := between(measured, q.Vouchers)
	plan := Plan{Question: q}
	// More instances share less with each other, so that each order costs more. Their number and its cost are found together.
	instances, grown := 1, 1.0
	for range 10 {
		cores := grown*busy(q.Orders, cost.Product) + busy(q.Refusals, c.Refusal)
		next := servers(cores, float64(q.Cores)*q.Load)
		if next <= instances {
			break
		}
		instances = next
		grown = math.Pow(1+c.Second, math.Log2(float64(instances)))
	}
	add := func(process string, cost, besides float64, most int) {
		cores := busy(q.Orders, cost*grown) + besides
		need := Need{Process: process, Cost: cost * grown, Cores: cores, Servers: 1, Each: most}
		if most == 0 { // it cannot be shared out
			need.Each = servers(cores, q.Load)
		} else {
			need.Servers = servers(cores, float64(most)*q.Load)
		}
		plan.Needs = append(plan.Needs, need)
	}
	add("seckill", cost.Product, busy(q.Refusals, c.Refusal), q.Cores)
	add("Redis", cost.Redis, 0, 1) // it runs scripts one after the other, whatever cores there are
	add("MariaDB", cost.MariaDB, 0, 0)
	if q.Mode == model.ModeAsync {
		add("NATS", cost.NATS, 0, 0)
	}
	return plan, nil
}

// busy is how many cores so many answers a second keep busy.
func busy(perSecond, microseconds float64) float64 { return perSecond * microseconds / 1e6 }

// servers is how many are needed of those that may keep so many cores busy.
func servers(cores, each float64) int {
	return max(1, int(math.Min(math.Ceil(cores/each), math.MaxInt32)))
}

// between is what an order costs with so many vouchers: between two measured numbers it grows with their logarithm, and beyond the
// last no more, because a group of orders then has none that share a voucher.
func between(measured []Order, vouchers int) Order {
	i := slices.IndexFunc(measured, func(o Order) bool { return o.Vouchers >= vouchers })
	if i < 0 {
		return measured[len(measured)-1]
	}
	if i == 0 || measured[i].Vouchers == vouchers {
		return measured[i]
	}
	a, b := measured[i-1], measured[i]
	part := math.Log(float64(vouchers)/float64(a.Vouchers)) / math.Log(float64(b.Vouchers)/float64(a.Vouchers))
	mix := func(a, b float64) float64 { return a + part*(b-a) }
	return Order{vouchers, mix(a.Product, b.Product), mix(a.MariaDB, b.MariaDB), mix(a.Redis, b.Redis), mix(a.NATS, b.NATS)}
}
