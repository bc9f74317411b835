package capacity_test

import (
	"math"
	"testing"

	"seckill/internal/capacity"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// measured are round figures.
var measured = capacity.Costs{
	Orders: map[model.OrderMode][]capacity.Order{
		model.ModeAsync: {{1, 100, 20, 10, 10}, {100, 200, 40, 30, 10}},
		model.ModeSync:  {{1, 200, 50, 40, 0}},
	},
	Refusal: 50, Second: 0.5,
}

func TestPlan(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		question capacity.Question
		want     []capacity.Need
	}{
		"one machine": {
			capacity.Question{Mode: model.ModeAsync, Orders: 5000, Vouchers: 1, Cores: 2, Load: 0.5},
			[]capacity.Need{{"seckill", 100, 0.5, 1, 2}, {"Redis", 10, 0.05, 1, 1}, {"MariaDB", 20, 0.1, 1, 1}, {"NATS", 10, 0.05, 1, 1}},
		},
		"halfway between 1 and 100 vouchers": {
			capacity.Question{Mode: model.ModeAsync, Orders: 5000, Vouchers: 10, Cores: 2, Load: 0.5},
			[]capacity.Need{{"seckill", 150, 0.75, 1, 2}, {"Redis", 20, 0.1, 1, 1}, {"MariaDB", 30, 0.15, 1, 1}, {"NATS", 10, 0.05, 1, 1}},
		},
		"more vouchers than were measured, and refusals": {
			capacity.Question{Mode: model.ModeAsync, Orders: 1000, Refusals: 10_000, Vouchers: 5000, Cores: 2, Load: 1},
			[]capacity.Need{{"seckill", 200, 0.7, 1, 2}, {"Redis", 30, 0.03, 1, 1}, {"MariaDB", 40, 0.04, 1, 1}, {"NATS", 10, 0.01, 1, 1}},
		},
		// One instance has one core, and 1.2 are wanted. Of two instances an order costs 1.5 times as much.
		"more instances cost more": {
			capacity.Question{Mode: model.ModeAsync, Orders: 12_000, Vouchers: 1, Cores: 1, Load: 1},
			[]capacity.Need{{"seckill", 150, 1.8, 2, 1}, {"Redis", 15, 0.18, 1, 1}, {"MariaDB", 30, 0.36, 1, 1}, {"NATS", 15, 0.18, 1, 1}},
		},
		"sync": {
			capacity.Question{Mode: model.ModeSync, Orders: 1000, Vouchers: 1, Cores: 2, Load: 0.5},
			[]capacity.Need{{"seckill", 200, 0.2, 1, 2}, {"Redis", 40, 0.04, 1, 1}, {"MariaDB", 50, 0.05, 1, 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := check.Value(measured.Plan(test.question))(t)
			if len(plan.Needs) != len(test.want) {
				t.Fatalf("needs %+v", plan.Needs)
			}
			for i, want := range test.want {
				got := plan.Needs[i]
				if got.Process != want.Process || got.Servers != want.Servers || got.Each != want.Each ||
					math.Abs(got.Cost/want.Cost-1) > 0.001 || math.Abs(got.Cores/want.Cores-1) > 0.001 {
					t.Errorf("need %+v, want %+v", got, want)
				}
			}
		})
	}
}

// A Redis runs scripts one after the other: more cores are of no use to it, but more Redis are.
func TestRedisHasOneCore(t *testing.T) {
	t.Parallel()
	plan := check.Value(measured.Plan(capacity.Question{Mode: model.ModeAsync, Orders: 120_000, Vouchers: 1, Cores: 64, Load: 0.5}))(t)
	check.Equal(t, "Redis", plan.Needs[1].Servers, 3)
	check.Equal(t, "instances", plan.Needs[0].Servers, 1)
}

func TestNoPlan(t *testing.T) {
	t.Parallel()
	good := capacity.Question{Mode: model.ModeAsync, Orders: 1, Vouchers: 1, Cores: 1, Load: 0.5}
	for name, spoil := range map[string]func(*capacity.Question){
		"nobody":         func(q *capacity.Question) { q.Orders = 0 },
		"endlessly many": func(q *capacity.Question) { q.Orders = math.Inf(1) },
		"no number":      func(q *capacity.Question) { q.Refusals = math.NaN() },
		"no voucher":     func(q *capacity.Question) { q.Vouchers = 0 },
		"no core":        func(q *capacity.Question) { q.Cores = 0 },
		"no load":        func(q *capacity.Question) { q.Load = math.NaN() },
		"other mode":     func(q *capacity.Question) { q.Mode = "both" },
	} {
		bad := good
		spoil(&bad)
		if _, err := measured.Plan(bad); model.CodeOf(err) != model.CodeValidation {
			t.Errorf("%s: %v", name, err)
		}
	}
	check.Must(t, check.ErrorOf(measured.Plan(good)))
	check.Must(t, check.ErrorOf(capacity.Recorded()))
}
