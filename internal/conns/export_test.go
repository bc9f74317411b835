package conns

import "time"

// Pass lets time go by for the trouble that a guard remembers. Before a negative one no machine is slow enough that the
// trouble is over.
func (g *Guard) Pass(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, since := range []*time.Time{&g.failed, &g.crowded} {
		if !since.IsZero() {
			*since = since.Add(-d)
		}
	}
}
