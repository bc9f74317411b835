// Package budget is the page of time: how long things may take, wait and last. What other packages need is one of
// these, or is derived from one by its name. A time that has no place here is a rule of its own, and stands where it is
// obeyed.
package budget

import "time"

const (
	// Blink is a pause that nobody notices: before a failed call is repeated, and between looks at what may happen.
	Blink = 50 * time.Millisecond
	// Glance is between two looks at what must show within a second, and the longest such pause.
	Glance = 250 * time.Millisecond
	// Brief is how long a background loop may take to end, whose reading is canceled, and one short question to a peer.
	Brief = 500 * time.Millisecond
	// Look is the second within which the contract lets a change be noticed: a sign of life, and one look.
	Look = time.Second
	// Call bounds one call to a server that answers within milliseconds while it is well.
	Call = 2 * time.Second
	// Work is what a request may use of its Answer; the last second brings the answer to the client.
	Work = 4 * time.Second
	// Answer is the contract's: an answer takes at most the wait for the user's lock and this.
	Answer = 5 * time.Second
	// Stop bounds a stop behind its grace, and is the lease of an election: how long who died keeps its successor out,
	// which needs the rest of Settled.
	Stop = 8 * time.Second
	// Step bounds one step in the background: a check at the start, one look of a repair.
	Step = 10 * time.Second
	// Settled is the contract's: within it the orders of a process that died are settled.
	Settled = 30 * time.Second
	// Survey bounds a reading of everything: a report, an audit.
	Survey = time.Minute
	// Late is how much later than its end something may still arrive: far above any connection's patience.
	Late = 10 * time.Minute
	// Hour is how long what is done with is kept. Clocks of two machines differ by minutes, and never by an Hour.
	Hour = time.Hour
	// Day is how long people have for what they come back to.
	Day = 24 * Hour
	// Week is how long things are kept for whoever was away.
	Week = 7 * Day
)
