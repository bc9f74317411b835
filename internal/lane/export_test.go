package lane

// MaxIsolated bounds the keys that a lane remembers.
const MaxIsolated = maxIsolated

// Remembered counts the keys that a lane remembers.
func Remembered[In, Out any](l *Lane[In, Out]) int {
	l.keys.mu.Lock()
	defer l.keys.mu.Unlock()
	return len(l.keys.keys)
}
