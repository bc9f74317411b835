// Package bench measures what the service costs. Every figure is taken beside the yardstick, a program that does
// nothing but check a token (internal/workshop/bench/yardstick), in the same minute on the same machine: the ratio of
// the two says more than either. On a noisy machine the CPU time a request, process by process, says most.
//
// A round takes the cases in turn, and for each case every build. A session starts the service with production's
// settings on servers of its own; it warms up, is measured, and is held to account: accepted answers are rows in the
// database, the audits balance, and there were fsyncs. What fails any of these is an error and has no figure.
//
// There are two loads. On a closed one, each connection asks again as soon as it has its answer. An open one sends at a
// constant rate, a part of what the closed one reached, whatever the answers take. Both count from when a request was
// due.
//
// Each measurement is a line of Go's benchmark format, which benchstat reads: `make bench` shows its medians.
package bench
