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

// Pass lets a guard's remembered trouble age. A negative d keeps it young on any slow machine.
func (g *Guard) Pass(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, since := range []*time.Time{&g.failed, &g.crowded} {
		if !since.IsZero() {
			*since = since.Add(-d)
		}
	}
}
