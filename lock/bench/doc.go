// Package bench measures this repository's lock against the other Redis locks of the Go world, redsync, redislock
// and rueidislock, on the same Redis in one run. It is a module of its own so that their dependencies stay out of
// the service's, and it has no code but its tests:
//
//	go test -count=1 -v .                              everything, about two minutes
//	go test -count=1 -v -run TestPeers/hot . -rounds 7  one workload, more rounds
//	go test -count=1 -v . -check                       fails when a target is missed
//
// The contestants take turns in short rounds (A B C D, B C D A, …), so that what else the machine does meets all of
// them alike. A table shows the median of the rounds; a ratio is the median of the rounds' own ratios. Figures of one
// run can be compared with one another and with nothing else.
//
// Each contestant runs with its defaults but for: ContextTimeoutEnabled for ours, with which a lone caller needs no second
// goroutine, a pool of as many connections as goroutines for those that take
// one for each call (redsync, redislock), unlimited tries (redsync gives up after 32), a pause of 10 ms between
// tries for redislock, which has no default, and for rueidislock, whose default is a majority of three keys, one key a
// lock, NOLOOP, and 2 s for an attempt: with its default of 20 ms it waits for ever once an answer is late.
package bench
