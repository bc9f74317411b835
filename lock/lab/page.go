package main

import (
	"bytes"
	_ "embed"
	"html/template"
	"os"
	"time"
)

//go:embed page.html
var pageText string

// writePage writes the table and a time line for each interleaving to one HTML file.
func (r report) writePage(name string) {
	millis := func(d time.Duration) float64 {
		return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
	}
	form := template.Must(template.New("page").Funcs(template.FuncMap{"short": short, "millis": millis}).Parse(pageText))
	var page bytes.Buffer
	must("make the page", form.Execute(&page, r))
	must("write the page", os.WriteFile(name, page.Bytes(), 0o644)) //nolint:gosec // it is for people
}

// stretch is a part of a time line, in thousandths of it.
type stretch struct{ X, Width int64 }

// Ends is when the last worker of an attack has ended.
func (a Attack) Ends() (last time.Duration) {
	for _, h := range a.Holds {
		last = max(last, h.Ends())
	}
	return last
}

// Stretch is a time, or an instant. What is short can be seen all the same.
func (a Attack) Stretch(from, to time.Duration) stretch {
	const all, tick = 1000, 3
	ends := int64(max(a.Ends(), 1))
	x := min(int64(from)*all/ends, all-tick)
	return stretch{x, max(int64(to)*all/ends-x, tick)}
}

// Twice is the time in which another worker had the lock too.
func (a Attack) Twice(h Hold) (all []stretch) {
	for _, other := range a.Holds {
		if from, to := h.with(other); from < to {
			all = append(all, a.Stretch(from, to))
		}
	}
	return all
}
