// Package bench measures what the service costs, beside the yardstick, which only checks a token (bench/yardstick), in
// the same minute on the same machine: their ratio says most, or on a noisy one the CPU time a request of each process.
//
// A round takes each case in turn, and for it every build. A session starts the service with production's settings on
// its own servers, warms up, is measured, and must pass: accepted answers are rows, audits balance, and there were
// fsyncs; or it has no figure. A connection of the closed load asks again once answered; the open load has a constant
// rate, a part of what the closed one reached. Both count from when a request was due.
//
// Each measurement is a line of Go's benchmark format, which benchstat reads: `make bench` shows its medians.
package bench
