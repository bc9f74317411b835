package bench

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Text is the report for a terminal.
func (r Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s on %d × %s, %d rounds of %d s; µs, allocations, commands and statements are those of an answer\n\n",
		r.Commit, r.Machine.Cores, r.Machine.CPU, r.Rounds, r.Seconds)
	for _, table := range [][][]string{r.cells(speed(), r.Rows), r.cells(price(), r.Rows), r.growthCells(), r.targetCells()} {
		if len(table) < 2 {
			continue
		}
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, row := range table {
			fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
		}
		_ = w.Flush() // into a builder, which never fails
		b.WriteString("\n")
	}
	for _, why := range r.Errors {
		fmt.Fprintf(&b, "NO FIGURE: %s\n", why)
	}
	return b.String()
}

// preamble says what was measured, when and on what.
func (r Report) preamble() string {
	return fmt.Sprintf("Measured on %s, commit %s, %d rounds of %d s,\non %d cores (%s, %d GiB) that the generator, the servers and the service share.\n%s.\n",
		r.At.Format("2 January 2006"), r.Commit, r.Rounds, r.Seconds, r.Machine.Cores, r.Machine.CPU, r.Machine.Memory, r.Machine.versions())
}

// Markdown is some rows of the report, how they grow, and the targets.
func (r Report) Markdown(rows []Row) string {
	var tables []string
	for _, table := range [][][]string{r.cells(speed(), rows), r.cells(price(), rows), r.growthCells(), r.targetCells()} {
		if len(table) > 1 {
			var b strings.Builder
			writeMarkdown(&b, table)
			tables = append(tables, b.String())
		}
	}
	return strings.Join(tables, "\n")
}

func writeMarkdown(b *strings.Builder, table [][]string) {
	for i, row := range table {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
}

// mainRows are those of this checkout's build under the load that every round measures, and the open load.
func (r Report) mainRows() []Row {
	var rows []Row
	for _, row := range r.Rows {
		if row.Build == "" && (row.Load == r.mainLoad() || row.Load == OpenLoad) {
			rows = append(rows, row)
		}
	}
	return rows
}

// mainLoad is the number of connections that every round measures: the first row's.
func (r Report) mainLoad() string {
	if len(r.Rows) == 0 {
		return ""
	}
	return r.Rows[0].Load
}

// cells are a table of the columns in which any row has a figure, with a head.
func (r Report) cells(columns []column, rows []Row) [][]string {
	head := []string{"case", "load"}
	table := make([][]string, 1+len(rows))
	for i, row := range rows {
		name := row.Case
		if row.Build != "" {
			name += " [" + row.Build + "]"
		}
		table[1+i] = []string{name, row.Load}
	}
	for _, c := range columns {
		cells, any := make([]string, len(rows)), false
		for i, row := range rows {
			cells[i] = "–"
			if value, measured := row.Figures[c.figure]; measured {
				cells[i], any = strconv.FormatFloat(value, 'f', c.decimals, 64), true
			}
		}
		if !any {
			continue
		}
		head = append(head, c.head)
		for i, cell := range cells {
			table[1+i] = append(table[1+i], cell)
		}
	}
	table[0] = head
	return table
}

// versions are those of what was measured with.
func (m Machine) versions() string {
	var parts []string
	for _, name := range []string{"Linux", "Go", "MariaDB", "Redis", "NATS", "wrk"} {
		if version := m.Versions[name]; version != "" {
			parts = append(parts, name+" "+version)
		}
	}
	return strings.Join(parts, ", ")
}

// Loads that are no number of connections.
const (
	// OpenLoad is a constant rate: half of what the closed load has reached.
	OpenLoad = "open"
)
