// Package bench measures this repository's lock against the other Redis locks of the Go world, redsync, redislock
// and rueidislock, on the same Redis in one run. It is a module of its own so that their dependencies stay out of
// the service's, and it has no code but its benchmarks. `make bench-lock` lets all have their turn several times, one
// after the other, and benchstat takes the medians. Figures of one run can be compared with one another and with
// nothing else; the CPU time of client and Redis together says most.
//
// Each contestant runs with its defaults but for:
//
//   - ours: ContextTimeoutEnabled, with which a lone caller needs no second goroutine
//   - redsync and redislock, which take a connection for each call: as many connections as goroutines
//   - redsync: unlimited tries, since it gives up after 32
//   - redislock: a pause of 10 ms between tries, since it has no default
//   - rueidislock: one key a lock instead of a majority of three, NOLOOP, and 2 s for an attempt, since with its
//     default of 20 ms it waits for ever once an answer is late
package bench
