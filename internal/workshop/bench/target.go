package bench

import "strconv"

// target is what a figure of a row has to be.
type target struct {
	what       string
	name, load string // of the row; no load: the one that every round measures
	figure     Figure
	least, aim float64
}

// targets are for two cores that the generator, the servers and the service share.
func targets() []target {
	return []target{
		{"async, persisted on the same cores meanwhile / yardstick", "async", "", Ratio, 0.40, 0.50},
		{"async, the worker stopped / yardstick", "async-api", "", Ratio, 0.55, 0.70},
		{"sync / yardstick", "sync", "", Ratio, 0.33, 0.45},
		{"sold out, async / yardstick", "sold-out", "", Ratio, 1.0, 1.1},
		{"sold out, sync / yardstick", "sold-out-sync", "", Ratio, 1.0, 1.1},
		{"async with multilock over three instances / yardstick", "multilock", "", Ratio, 0.15, 0.25},
		{"CPU of an async order, all processes but the generator, in yardsticks", "async", "", Cost, 2.3, 1.8},
		{"p99 of an async accept at half of the throughput, ms", "async", OpenLoad, P99, 20, 5},
		{"p99 of a sync accept at half of the throughput, ms", "sync", OpenLoad, P99, 20, 5},
		{"drain by one worker, orders/s", "async-api", "", Drain, 30_000, 60_000},
		{"Redis memory of a buyer, bytes", "async: buyers", "1000000", BuyerBytes, 200, 120},
		{"resident memory at 1,000,000 buyers, MiB", "async: buyers", "1000000", Memory, 300, 150},
	}
}

// reached tells whether a value is as good as another one.
func (t target) reached(value, wanted float64) bool {
	for _, c := range append(speed(), price()...) {
		if c.figure == t.figure && c.more {
			return value >= wanted
		}
	}
	return value <= wanted
}

// verdict is "short" below the least, "met", or "aim" when that is reached, too.
func (t target) verdict(value float64) string {
	switch {
	case t.reached(value, t.aim):
		return "aim"
	case t.reached(value, t.least):
		return "met"
	default:
		return "short"
	}
}

// targetCells are a table of the targets that were measured, with a head.
func (r Report) targetCells() [][]string {
	table := [][]string{{"target", "at least", "aim", "measured", ""}}
	number := func(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }
	for _, t := range targets() {
		load := t.load
		if load == "" {
			load = r.mainLoad()
		}
		row, _ := r.row(t.name, load)
		if value, measured := row.Figures[t.figure]; measured {
			shown := strconv.FormatFloat(value, 'f', 2, 64)
			table = append(table, []string{t.what, number(t.least), number(t.aim), shown, t.verdict(value)})
		}
	}
	return table
}
