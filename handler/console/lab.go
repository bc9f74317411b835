package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"seckill/internal/lab"
	"seckill/model"
)

// labTimeout bounds a run. Most take a second; those that start a database, some more.
const labTimeout = 90 * time.Second

// laboratory remembers what has become of the rows that were run here: one at a time, with servers that go with the run, and
// never on those of the shop.
type laboratory struct {
	running sync.Mutex

	mu  sync.Mutex
	ran map[string]ranRow // by name; guarded by mu
}

// ranRow is what has become of a row.
type ranRow struct {
	lab.Row

	At time.Time
}

// labPage is the list of the rows, and the one that was run last.
type labPage struct {
	Groups []labGroup
	Ran    *ranRow // nil: none is shown
}

type labGroup struct {
	Words string
	Rows  []lab.Exhibit
}

// showLab lists the rows, and shows what has become of one of them.
func (c *console) showLab(w http.ResponseWriter, r *http.Request, v *visit) error {
	page := labPage{}
	named := map[string]string{"broken": "Wrong on purpose", "locks": "Right locks", "stock": "Right sales in the database"}
	for _, row := range lab.Exhibits() {
		if n := len(page.Groups); n == 0 || page.Groups[n-1].Words != named[row.Group] {
			page.Groups = append(page.Groups, labGroup{Words: named[row.Group]})
		}
		last := &page.Groups[len(page.Groups)-1]
		last.Rows = append(last.Rows, row)
	}
	c.lab.mu.Lock()
	if ran, ok := c.lab.ran[r.URL.Query().Get("row")]; ok {
		page.Ran = &ran
	}
	c.lab.mu.Unlock()
	return c.show(w, r, v, http.StatusOK, "lab", page)
}

// runRow runs one row, and leads to what has become of it.
func (c *console) runRow(w http.ResponseWriter, r *http.Request, _ *visit) error {
	name := r.PostForm.Get("row")
	if !slices.ContainsFunc(lab.Exhibits(), func(e lab.Exhibit) bool { return e.Name == name && e.Needs == "" }) {
		return model.NotFound("row of the laboratory")
	}
	if !c.lab.running.TryLock() {
		return model.Conflict("Another row of the laboratory runs now. Run this one when it has ended.")
	}
	defer c.lab.running.Unlock()
	c.patiently(w)
	ctx, cancel := context.WithTimeout(r.Context(), labTimeout)
	defer cancel()
	spawn, err := lab.Itself()
	if err != nil {
		return err
	}
	row, err := lab.Show(ctx, name, spawn)
	if err != nil {
		return err
	}
	if row.Err != nil {
		c.Log.WarnContext(ctx, "a row of the laboratory could not run", slog.String("row", name), slog.Any("error", row.Err))
	}
	c.lab.mu.Lock()
	c.lab.ran[name] = ranRow{row, time.Now()}
	c.lab.mu.Unlock()
	return done(w, r, Path+"/lab?row="+url.QueryEscape(name), "ran")
}

// Courses are the time lines of a row, one for each interleaving.
func (r ranRow) Courses() (all []course) {
	for _, a := range r.Attacks {
		c := course{Attack: a}
		for _, h := range a.Holds {
			c.Ends = max(c.Ends, h.Did[len(h.Did)-1].At)
		}
		for _, h := range a.Holds {
			c.Lanes = append(c.Lanes, c.lane(h))
		}
		all = append(all, c)
	}
	return all
}

// course is the time line of one interleaving.
type course struct {
	lab.Attack

	Ends  time.Duration
	Lanes []lane
}

// lane is what one worker did, drawn.
type lane struct {
	lab.Hold

	There  stretch   // from its beginning to its end
	Inside stretch   // with the lock, or without one between its read and its end
	Twice  []stretch // with the lock while another one had it too
	Ticks  []stretch // what it did
}

// stretch is a part of a time line, in thousandths of it. What is short can be seen all the same.
type stretch struct{ X, Width int64 }

const (
	lineWidth = 1000
	tickWidth = 3
)

func (c course) lane(h lab.Hold) lane {
	l := lane{Hold: h, There: c.stretch(h.Did[0].At, h.Did[len(h.Did)-1].At), Inside: c.stretch(h.From, h.To)}
	for _, other := range c.Holds {
		if from, to := max(h.From, other.From), min(h.To, other.To); h.Locked && other.Locked && other.Holder != h.Holder && from < to {
			l.Twice = append(l.Twice, c.stretch(from, to))
		}
	}
	for _, m := range h.Did {
		l.Ticks = append(l.Ticks, c.stretch(m.At, m.At))
	}
	return l
}

func (c course) stretch(from, to time.Duration) stretch {
	if c.Ends == 0 {
		return stretch{}
	}
	x := min(int64(from)*lineWidth/int64(c.Ends), lineWidth-tickWidth)
	return stretch{x, max(int64(to)*lineWidth/int64(c.Ends)-x, tickWidth)}
}

// millis is a time of a time line for people, in milliseconds.
func millis(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64)
}
