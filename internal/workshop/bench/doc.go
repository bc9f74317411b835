// Package bench measures what the service costs. Every figure is taken beside the yardstick, a program that does
// nothing but check a token (internal/workshop/bench/yardstick), in the same minute on the same machine: the ratio of the two
// says more than either. On a noisy machine the CPU time a request, process by process, says most.
//
// A round takes the cases in turn (case_test.go). A session of a case starts the service with production's settings on
// real servers, a fresh database schema, an empty Redis and no stream; it warms up, is measured, and is held to account:
// accepted answers are rows in the database, the audits balance, and there were fsyncs. What fails any of these is an
// error and no figure. `make test` runs one short session, which asserts the accounting and never speed.
//
// There are two loads. The closed one is wrk: so many connections, each of which asks again as soon as it has its answer.
// The open one sends at a constant rate, half of what the closed one has reached, whatever the answers take, and
// measures from the moment at which a request was due.
//
//	make bench                                     every case: table, targets, bin/bench.json
//	make bench CASES='async sync' ROUNDS=5         those alone
//	make bench BINARY=../other/bin/seckill         that build beside this one, in alternating turns
//	make bench KEEP=on                             also the record in deployments/bench, and its README and picture
//	make bench-scale                               buyers, vouchers, instances, connections
//	make bench-compare OLD=a.json NEW=b.json       what became more than a tenth worse
package bench
