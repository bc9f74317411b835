package command

import (
	"fmt"
	"io"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows how a sale goes on: bars on a terminal, lines elsewhere.
type progress struct {
	out    io.Writer
	buyers int

	bars        *mpb.Progress // nil: lines
	asked, sold *mpb.Bar

	mu             sync.Mutex // one line at a time
	answers, sales int
}

func newProgress(out io.Writer, s sale, bars bool) *progress {
	p := &progress{out: out, buyers: s.buyers}
	if !bars {
		return p
	}
	p.bars = mpb.New(mpb.WithOutput(out), mpb.WithWidth(60))
	bar := func(name string, total int64) *mpb.Bar {
		return p.bars.AddBar(total,
			mpb.PrependDecorators(decor.Name(name, decor.WCSyncSpaceR), decor.CountersNoUnit("%d of %d", decor.WCSyncSpace)),
			mpb.AppendDecorators(decor.Percentage(decor.WCSyncSpace)))
	}
	p.asked = bar("answered", int64(s.buyers))
	p.sold = bar("sold", max(s.stock, 1))
	return p
}

// answered counts one answer.
func (p *progress) answered(a answer) {
	won := a.won()
	if p.bars != nil {
		p.asked.Increment()
		if won {
			p.sold.Increment()
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers++
	if won {
		p.sales++
	}
	// A line for each quarter; the last one is all of them.
	if p.answers*4/p.buyers > (p.answers-1)*4/p.buyers {
		fmt.Fprintf(p.out, "  %d of %d answered, %d sold\n", p.answers, p.buyers, p.sales)
	}
}

// done leaves the bars as they are.
func (p *progress) done() {
	if p.bars == nil {
		return
	}
	p.asked.SetTotal(-1, true)
	p.sold.Abort(false) // it may not be full: fewer buyers than stock
	p.bars.Wait()
}
