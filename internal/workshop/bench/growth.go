package bench

import (
	"strconv"
	"strings"
)

// seriesMark stands in the names of cases that are measured at several sizes: "async: buyers".
const seriesMark = ": "

// growthTargets are how many times as much an order may cost at a size as at the smallest of its series.
func growthTargets() map[string]float64 {
	return map[string]float64{
		"async: vouchers 10": 1.25, "async: vouchers 100": 1.55, "async: vouchers 1000": 1.9, "sync: vouchers 100": 1.15, "async: instances 4": 1.5,
	}
}

// growthCells tell, for every series of sizes, how many times as much an order costs at each as at the first.
func (r Report) growthCells() [][]string {
	table := [][]string{{"series", "from", "to", "CPU of an order, µs", "", "times", "at most", ""}}
	first := map[string]Row{}
	number := func(value float64, decimals int) string { return strconv.FormatFloat(value, 'f', decimals, 64) }
	for _, row := range r.Rows {
		if !strings.Contains(row.Case, seriesMark) {
			continue
		}
		smallest, known := first[row.Case]
		if !known {
			first[row.Case] = row
			continue
		}
		before, now := smallest.Figures.cpu(), row.Figures.cpu()
		if before <= 0 {
			continue
		}
		most, verdict := "–", ""
		if target, has := growthTargets()[row.Case+" "+row.Load]; has {
			most, verdict = number(target, 2), map[bool]string{true: "met", false: "short"}[now/before <= target]
		}
		table = append(table, []string{row.Case, smallest.Load, row.Load, number(before, 0), number(now, 0), number(now/before, 2), most, verdict})
	}
	return table
}
