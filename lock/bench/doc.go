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
// Each contestant runs with its defaults but for:
//
//   - ours: ContextTimeoutEnabled, with which a lone caller needs no second goroutine
//   - redsync and redislock, which take a connection for each call: as many connections as goroutines
//   - redsync: unlimited tries, since it gives up after 32
//   - redislock: a pause of 10 ms between tries, since it has no default
//   - rueidislock: one key a lock instead of a majority of three, NOLOOP, and 2 s for an attempt, since with its
//     default of 20 ms it waits for ever once an answer is late
//
// A handover is compared with two round trips because it takes two: the release with its message, and the request of
// the next holder. The unit is a request of the lock itself; a PING, which does no work, is shown beside it.
package bench
