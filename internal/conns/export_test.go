package conns

import "time"

// Patient lets connections rest for longer than any machine is slow.
func (g *Guard) Patient() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rest = time.Hour
}

// Hasty lets connections rest for no time before they make room for others.
func (g *Guard) Hasty() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rest = 0
}

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
