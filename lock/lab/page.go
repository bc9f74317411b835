package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"time"
)

//go:embed page.html
var pageText string

// writePage writes the table and a time line for each interleaving to one HTML file.
func (r Report) writePage(name string) error {
	form, err := template.New("page").Funcs(template.FuncMap{
		"short": short, "millis": func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) },
	}).Parse(pageText)
	var page bytes.Buffer
	if err == nil {
		err = form.Execute(&page, r)
	}
	if err == nil {
		err = os.WriteFile(name, page.Bytes(), 0o644) //nolint:gosec // it is for people
	}
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// stretch is a part of a time line, in thousandths of it. What is short can be seen all the same.
type stretch struct{ X, Width int64 }

const (
	lineWidth = 1000
	tickWidth = 3
)

// Ends is when the last worker of an attack has ended.
func (a Attack) Ends() (last time.Duration) {
	for _, h := range a.Holds {
		last = max(last, h.Did[len(h.Did)-1].At)
	}
	return last
}

func (a Attack) stretch(from, to time.Duration) stretch {
	ends := int64(max(a.Ends(), 1))
	x := min(int64(from)*lineWidth/ends, lineWidth-tickWidth)
	return stretch{x, max(int64(to)*lineWidth/ends-x, tickWidth)}
}

// There is a worker's time from its beginning to its end.
func (a Attack) There(h Hold) stretch { return a.stretch(h.Did[0].At, h.Did[len(h.Did)-1].At) }

// Inside is a worker's time with the lock, or without one between its read and its end.
func (a Attack) Inside(h Hold) stretch { return a.stretch(h.From, h.To) }

// Tick is an instant.
func (a Attack) Tick(m Moment) stretch { return a.stretch(m.At, m.At) }

// Twice is the time in which another worker had the lock too.
func (a Attack) Twice(h Hold) (all []stretch) {
	for _, other := range a.Holds {
		if from, to := max(h.From, other.From), min(h.To, other.To); h.Locked && other.Locked && other.Holder != h.Holder && from < to {
			all = append(all, a.stretch(from, to))
		}
	}
	return all
}
