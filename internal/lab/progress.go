package lab

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// NewProgress shows how far a run is: a bar on a terminal, a line per row
// elsewhere.
func NewProgress(w io.Writer, terminal bool) Progress {
	if terminal {
		return &bar{out: w}
	}
	return &plain{out: w}
}

type silent struct{}

func (silent) Begin(int)    {}
func (silent) Attacked()    {}
func (silent) Start(string) {}
func (silent) Done(Row)     {}
func (silent) End()         {}

// plain writes a line per row, for logs.
type plain struct {
	out        io.Writer
	rows, done int
	began      time.Time
}

func (p *plain) Attacked()    {}
func (p *plain) Start(string) { p.began = time.Now() }
func (p *plain) End()         {}

func (p *plain) Begin(rows int) {
	p.rows = rows
	fmt.Fprintf(p.out, "forcing the interleavings on %d strategies\n", rows)
}

func (p *plain) Done(r Row) {
	p.done++
	fmt.Fprintf(p.out, "%2d/%d %s: %s (%s)\n", p.done, p.rows, r.Name, r.Verdict, short(time.Since(p.began)))
}

// bar is a progress bar with the name of the row that runs.
type bar struct {
	out  io.Writer
	all  *mpb.Progress
	line *mpb.Bar

	mu   sync.Mutex
	name string
}

func (b *bar) Begin(rows int) {
	b.name = "forced interleavings"
	b.all = mpb.New(mpb.WithOutput(b.out), mpb.WithWidth(40), mpb.WithAutoRefresh())
	b.line = b.all.AddBar(2*int64(rows), // each is attacked, and runs
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersNoUnit("%d/%d ")),
		mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_GO), decor.Any(func(decor.Statistics) string {
			b.mu.Lock()
			defer b.mu.Unlock()
			return "  " + b.name
		})))
}

func (b *bar) Start(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name = "free run: " + name
}

func (b *bar) Attacked() { b.line.Increment() }
func (b *bar) Done(Row)  { b.line.Increment() }

func (b *bar) End() {
	b.line.Abort(true) // nothing, when it is complete
	b.all.Wait()
}
