// Package guard says whether this instance may sell now, by what the database says of its instances: sole.go is whether it
// is alone, where it must be, and redis.go whether all use the same Redis. (The order mode has its own watcher, in
// service/repair.) The wiring asks it, and hands its verdict to everything that sells or touches a hot copy.
package guard

// Guards tell whether this instance may sell now: the first one that refuses gives the reason.
type Guards []interface{ Selling() error }

// Selling is nil, or says why this instance may not sell now.
func (g Guards) Selling() error {
	for _, guard := range g {
		if err := guard.Selling(); err != nil {
			return err
		}
	}
	return nil
}
