package bench

import (
	"strconv"
	"strings"
)

// seriesMark stands in the names of cases that are measured at several sizes: "async: buyers".
const seriesMark = ": "

// growthCells tell, for every series of sizes, how many times as much an order costs at the largest as at the smallest.
func (r Report) growthCells() [][]string {
	table := [][]string{{"series", "from", "to", "CPU of an order, µs", "", "times"}}
	first := map[string]Row{}
	for i, row := range r.Rows {
		if !strings.Contains(row.Case, seriesMark) {
			continue
		}
		if _, known := first[row.Case]; !known {
			first[row.Case] = row
		}
		if i+1 < len(r.Rows) && r.Rows[i+1].Case == row.Case {
			continue
		}
		smallest := first[row.Case]
		if before, now := smallest.Figures.cpu(), row.Figures.cpu(); smallest.Load != row.Load && before > 0 {
			table = append(table, []string{
				row.Case, smallest.Load, row.Load,
				strconv.FormatFloat(before, 'f', 0, 64), strconv.FormatFloat(now, 'f', 0, 64), strconv.FormatFloat(now/before, 'f', 2, 64),
			})
		}
	}
	return table
}
