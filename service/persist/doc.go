// Package persist is the way of an accepted order from the queue to its row, and of the news of that to the hot copies. The
// consumer of the queue calls Persister.Persist; what repairs (package repair) settles through the same Settler.
//
// Read persist.go first, then poison.go for orders that the database refuses, then settle.go.
package persist
