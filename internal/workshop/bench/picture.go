package bench

import (
	"fmt"
	"strings"
)

// Picture draws the CPU time of an answer, by process, for each case under the load that every round measures. It is an
// SVG with colours that are distinct on a white and on a black page.
func (r Report) Picture() string {
	const (
		left, right, top, line, bar = 120, 150, 40, 26, 16 // pixels
		width                       = 640                  // of the longest bar
	)
	var rows []Row
	longest := 1.0
	for _, row := range r.mainRows() {
		if row.Load == r.mainLoad() {
			rows = append(rows, row)
			longest = max(longest, row.Figures.cpu())
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#808080">`+"\n",
		left+width+right, top+line*len(rows)+10)
	x := left
	for _, p := range processes() {
		fmt.Fprintf(&b, `<rect x="%d" y="10" width="12" height="12" fill="%s"/><text x="%d" y="20">%s</text>`+"\n", x, p.colour, x+17, p.name)
		x += 90
	}
	for i, row := range rows {
		y, at := top+line*i, float64(left)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, y+13, row.Case)
		for _, p := range processes() {
			length := row.Figures[p.figure] / longest * width
			if length > 0 {
				fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", at, y, length, bar, p.colour)
			}
			at += length
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%.0f µs, ratio %.2f</text>`+"\n", at+8, y+13, row.Figures.cpu(), row.Figures[Ratio])
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// process is one that an answer costs CPU time; the generator's is not the service's.
type process struct {
	figure       Figure
	name, colour string
}

func processes() []process {
	return []process{
		{CPUProduct, "service", "#4269d0"},
		{CPUMariaDB, "MariaDB", "#efb118"},
		{CPURedis, "Redis", "#ff725c"},
		{CPUNATS, "NATS", "#3ca951"},
	}
}

// cpu is the CPU time of an answer in all processes but the generator, in microseconds.
func (f Figures) cpu() (total float64) {
	for _, p := range processes() {
		total += f[p.figure]
	}
	return total
}
