package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"seckill/internal/capacity"
	"seckill/model"
)

// costsFile is what `seckill capacity` reckons with.
const costsFile = "internal/capacity/costs.json"

// costs takes them from the newest records: what an order costs from the scale, what a refusal costs from the cases.
func costs(cases, scale Report) (capacity.Costs, error) {
	c := capacity.Costs{Commit: scale.Commit, CPU: scale.Machine.CPU, Orders: make(map[model.OrderMode][]capacity.Order, 2)}
	sold, found := cases.row("sold-out", "128")
	if !found {
		return c, fmt.Errorf("the record of %s has no sold-out case", cases.Commit)
	}
	c.Refusal = round(sold.Figures[CPUProduct])
	for _, row := range scale.Rows {
		size, err := strconv.Atoi(row.Load)
		if err != nil || row.Build != "" {
			continue
		}
		for _, mode := range []model.OrderMode{model.ModeSync, model.ModeAsync} {
			if row.Case == string(mode)+seriesMark+"vouchers" {
				c.Orders[mode] = append(c.Orders[mode], capacity.Order{
					Vouchers: size, Product: round(row.Figures[CPUProduct]), MariaDB: round(row.Figures[CPUMariaDB]),
					Redis: round(row.Figures[CPURedis]), NATS: round(row.Figures[CPUNATS]),
				})
			}
		}
	}
	one, hasOne := scale.row("async"+seriesMark+"instances", "1")
	four, hasFour := scale.row("async"+seriesMark+"instances", "4")
	if !hasOne || !hasFour {
		return c, fmt.Errorf("the record of %s has not measured 1 and 4 instances", scale.Commit)
	}
	c.Second = math.Round(100*(math.Sqrt(four.Figures.cpu()/one.Figures.cpu())-1)) / 100
	return c, nil
}

func round(microseconds float64) float64 { return math.Round(10*microseconds) / 10 }

// reckoned is the file of the costs as the newest records have it.
func reckoned(root string) ([]byte, error) {
	cases, _, err := newest(root, Cases)
	if err != nil {
		return nil, err
	}
	scale, _, err := newest(root, Scale)
	if err != nil {
		return nil, err
	}
	costs, err := costs(cases, scale)
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(costs, "", "\t")
	return append(text, '\n'), err
}
