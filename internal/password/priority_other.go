//go:build !linux

package password

// stepBack does nothing: other systems know no priority of one thread.
func stepBack() {}
