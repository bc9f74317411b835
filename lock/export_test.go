package lock

// Waiting tells tests how many wait in line for a lock.
func Waiting(c *Client, name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	if q := c.queues[name]; q != nil {
		for w := q.head; w != nil; w = w.next {
			n++
		}
	}
	return n
}

// DefaultLease is the watchdog's, for tests.
const DefaultLease = defaultLease
