package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Figure is the name of something that is measured.
type Figure string

// What a measurement tells. An order, in the units, is an answered request; for a case that sells it is an order.
const (
	Ratio      Figure = "ratio"       // requests/s, as a part of the yardstick's
	Rate       Figure = "rate"        // answers a second
	P50        Figure = "p50"         // milliseconds
	P99        Figure = "p99"         // milliseconds
	P999       Figure = "p99.9"       // milliseconds
	CPUProduct Figure = "cpu.product" // microseconds of CPU an order, as the four below
	CPUMariaDB Figure = "cpu.mariadb"
	CPURedis   Figure = "cpu.redis"
	CPUNATS    Figure = "cpu.nats"
	CPULoad    Figure = "cpu.generator"
	Cost       Figure = "cost"           // CPU an order of all processes but the generator, in requests of the yardstick
	Allocs     Figure = "allocations"    // of the product, an order
	Bytes      Figure = "bytes"          // allocated by the product, an order
	Redis      Figure = "redis.commands" // an order, those inside scripts included
	Statements Figure = "statements"     // SQL, an order
	Fsyncs     Figure = "fsyncs"         // of MariaDB, an order
	Messages   Figure = "messages"       // stored by JetStream, an order: with sync_interval always, a flush each
	Reserve    Figure = "group.reserve"  // orders that shared a call of a hot copy
	Publish    Figure = "group.publish"  // orders that shared a message
	Persist    Figure = "group.persist"  // orders that were persisted together
	Commit     Figure = "group.commit"   // orders of requests that shared a transaction
	Persisted  Figure = "persisted"      // orders a second that reached the database during the run
	Drain      Figure = "drain"          // orders a second after it, until the queue was empty
	Memory     Figure = "memory"         // MiB, the most the product had resident
	BuyerBytes Figure = "redis.bytes"    // of Redis' memory, a buyer
)

// column is how a figure is shown and judged.
type column struct {
	figure   Figure
	head     string
	decimals int
	more     bool // more is better
}

// speed and price are the columns of the two tables.
func speed() []column {
	return []column{
		{Ratio, "ratio", 2, true},
		{Rate, "answers/s", 0, true},
		{P50, "p50 ms", 1, false},
		{P99, "p99 ms", 1, false},
		{P999, "p99.9 ms", 1, false},
		{CPUProduct, "µs: product", 0, false},
		{CPUMariaDB, "MariaDB", 0, false},
		{CPURedis, "Redis", 0, false},
		{CPUNATS, "NATS", 0, false},
		{CPULoad, "generator", 0, false},
		{Cost, "in yardsticks", 2, false},
	}
}

func price() []column {
	return []column{
		{Allocs, "allocations", 0, false},
		{Bytes, "bytes", 0, false},
		{Redis, "Redis commands", 2, false},
		{Statements, "SQL statements", 3, false},
		{Fsyncs, "MariaDB fsyncs", 4, false},
		{Messages, "messages", 4, false},
		{Reserve, "group: reserve", 1, true},
		{Publish, "publish", 1, true},
		{Persist, "persist", 1, true},
		{Commit, "commit", 1, true},
		{Persisted, "persisted/s", 0, true},
		{Drain, "drain/s", 0, true},
		{Memory, "MiB", 0, false},
		{BuyerBytes, "Redis B/buyer", 0, false},
	}
}

// Figures are those of one measurement. What does not apply is absent.
type Figures map[Figure]float64

// Row is one case under one load: the medians of its rounds.
type Row struct {
	Build   string    `json:"build,omitempty"` // empty: this checkout's
	Case    string    `json:"case"`
	Load    string    `json:"load"` // a number of connections, or "open"
	Figures Figures   `json:"figures"`
	Ratios  []float64 `json:"ratios,omitempty"` // of each round
}

func (r Row) name() string {
	name := r.Case + " @" + r.Load
	if r.Build != "" {
		name += " [" + r.Build + "]"
	}
	return name
}

// Machine is what it was measured on.
type Machine struct {
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Memory   int               `json:"memory_gib"`
	Versions map[string]string `json:"versions"`
}

// Report is one run.
type Report struct {
	At      time.Time `json:"at"`
	Commit  string    `json:"commit"`
	Rounds  int       `json:"rounds"`
	Seconds int       `json:"seconds"`
	Machine Machine   `json:"machine"`
	Rows    []Row     `json:"rows"`
	Errors  []string  `json:"errors,omitempty"` // runs that failed their accounting, and have no figure
}

// row finds a row of this checkout's build.
func (r Report) row(name, load string) (Row, bool) {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Build == "" && row.Case == name && row.Load == load })
	if i < 0 {
		return Row{}, false
	}
	return r.Rows[i], true
}

// ReadReport reads the JSON of a run.
func ReadReport(path string) (Report, error) {
	var report Report
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil {
		return Report{}, fmt.Errorf("read the report %s: %w", path, err)
	}
	if len(report.Rows) == 0 {
		return Report{}, fmt.Errorf("read the report %s: %w", path, errors.New("it has no rows"))
	}
	return report, nil
}

// Write writes the JSON of a run.
func (r Report) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the report %s: %w", path, err)
	}
	return nil
}

// middle is what several rounds of one row say: figure by figure the median of those that have it.
func middle(rounds []Figures) Figures {
	all := make(map[Figure][]float64)
	for _, one := range rounds {
		for name, value := range one {
			all[name] = append(all[name], value)
		}
	}
	out := make(Figures)
	for name, values := range all {
		out[name] = median(values)
	}
	return out
}

// median of values, of which there is at least one.
func median[T cmp.Ordered](values []T) T {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
