package command

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows how a sale goes on: bars on a terminal, lines elsewhere.
type progress struct {
	out            io.Writer
	buyers         int64
	stock          int64
	answers, sales atomic.Int64

	bars        *mpb.Progress // nil: lines
	asked, sold *mpb.Bar
}

func newProgress(out io.Writer, s sale) *progress {
	p := &progress{out: out, buyers: int64(s.buyers), stock: s.stock}
	if !onTerminal(out) {
		return p
	}
	p.bars = mpb.New(mpb.WithOutput(out), mpb.WithWidth(60))
	bar := func(name string, total int64) *mpb.Bar {
		return p.bars.AddBar(total,
			mpb.PrependDecorators(decor.Name(name, decor.WCSyncSpaceR), decor.CountersNoUnit("%d of %d", decor.WCSyncSpace)),
			mpb.AppendDecorators(decor.Percentage(decor.WCSyncSpace)))
	}
	p.asked = bar("answered", p.buyers)
	p.sold = bar("sold", max(p.stock, 1))
	return p
}

// answered counts one answer.
func (p *progress) answered(a answer) {
	sold := p.sales.Load()
	if a.status == http.StatusCreated {
		sold = p.sales.Add(1)
		if p.bars != nil {
			p.sold.Increment()
		}
	}
	n := p.answers.Add(1)
	if p.bars != nil {
		p.asked.Increment()
		return
	}
	// A line for each quarter.
	if quarter := max(p.buyers/4, 1); n%quarter == 0 {
		fmt.Fprintf(p.out, "  %d of %d answered, %d sold\n", n, p.buyers, sold)
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
