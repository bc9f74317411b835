// Package lab is the lock laboratory: the same work under every lock and stock
// strategy, the broken ones of the tutorials and the real ones of this project.
//
// The work is the oldest one there is: N workers add to one account and take
// units of one stock, each by reading, thinking and writing back. It is done
// twice. First under attack: an interleaving that breaks the broken ones is
// forced by stopping workers at chosen points, so that it shows every time and
// not by luck; the real ones must survive the very same interleavings. Then
// freely, as fast as it goes, for throughput and waiting.
//
// One file per family of strategies; attack.go holds the interleavings,
// catalog.go the list of rows.
package lab
