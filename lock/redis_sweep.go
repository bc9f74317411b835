package lock

import (
	"context"
	"slices"
	"time"
)

// guard sees to it that sweep runs while there is something to look after. One
// timer for all: a timer per call would cost more than the call. Under b.mu.
func (b *batcher) guard() {
	if !b.watched && !b.closed {
		b.watched = true
		b.sweeper.Reset(pipelineSweep)
	}
}

// sweep ends the calls that have waited too long, gives the places of stuck
// pipelines to new ones, and deletes latches that are done with.
func (b *batcher) sweep() {
	b.mu.Lock()
	b.watched = false
	now := time.Now()
	tooOld := func(c *call) bool { return now.Sub(c.queued) >= b.timeout }
	b.pending = slices.DeleteFunc(b.pending, func(c *call) bool {
		if tooOld(c) {
			b.abort(c, context.DeadlineExceeded)
			return true
		}
		return false
	})
	for p := range b.running {
		if p.began.IsZero() || now.Sub(p.began) < overdueAfter {
			continue
		}
		for _, c := range p.calls {
			if tooOld(c) {
				b.abort(c, context.DeadlineExceeded)
			}
		}
		if !p.overdue && len(b.running) < b.pipelines+maxOverdue {
			p.overdue = true
			b.active--
			b.start()
		}
	}
	forgot := b.forgot
	b.forgot = nil
	if len(b.running) > 0 || len(b.pending) > 0 {
		b.guard()
	}
	if len(forgot) > 0 {
		b.work.Go(func() { b.unlink(forgot) })
	}
	b.mu.Unlock()
}

// forget deletes a latch some time, along with other calls.
func (b *batcher) forget(latch string) {
	if b.cluster {
		return // keys of different slots cannot go together; they expire
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && len(b.forgot) < maxForgotten {
		b.forgot = append(b.forgot, latch)
		b.guard()
	}
}

func (b *batcher) unlink(latches []string) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	_ = b.client.Unlink(ctx, latches...).Err() // they expire anyway
}

// close refuses further calls and waits for those under way, as long as they
// are not stuck.
func (b *batcher) close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.sweeper.Stop()
	forgot := b.forgot
	b.forgot = nil
	b.mu.Unlock()
	if !first {
		return
	}
	if len(forgot) > 0 {
		b.unlink(forgot)
	}
	ended := make(chan struct{})
	go func() {
		b.work.Wait()
		close(ended)
	}()
	t := time.NewTimer(closeTimeout)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	}
}
