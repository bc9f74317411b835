// Package budget is the page of time: how long things may take, wait and last. Other packages take one of these, or
// derive one by its name; a time without a place here is a rule of its own, and stands where it is obeyed.
package budget

import "time"

// The budgets, from the shortest.
const (
	Blink  = 50 * time.Millisecond  // a pause that nobody notices: before a repeat, between looks at what may happen
	Glance = 250 * time.Millisecond // between two looks at what must show within a second, and the longest such pause
	Brief  = 500 * time.Millisecond // the end of a background loop, its reading canceled; one short question to a peer
	Look   = time.Second            // the second in which the contract lets a change be noticed: a sign of life, a look
	Call   = 2 * time.Second        // bounds one call to a server that answers within milliseconds while it is well
	Work   = 4 * time.Second        // a request's part of its Answer; the last second brings the answer to the client
	Answer = 5 * time.Second        // the contract's: an answer takes at most the wait for the user's lock and this
	// Stop bounds a stop behind its grace, and is an election's lease: a successor needs the rest of Settled.
	Stop    = 8 * time.Second
	Step    = 10 * time.Second // bounds one step in the background: a check at the start, one look of a repair
	Settled = 30 * time.Second // the contract's: within it the orders of a process that died are settled
	Survey  = time.Minute      // bounds a reading of everything: a report, an audit
	Late    = 10 * time.Minute // how much later than its end something may arrive: above any connection's patience
	Undo    = Hour / 4         // how long who used a code may undo that: the customer who was at the till is still near
	Hour    = time.Hour        // how long what is done with is kept: two machines' clocks never differ by as much
	Day     = 24 * Hour        // how long people have for what they come back to
	Week    = 7 * Day          // how long things are kept for whoever was away
)
