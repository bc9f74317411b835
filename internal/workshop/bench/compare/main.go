// Command compare names every figure of a benchmark that became more than a tenth worse: `compare old.json new.json`.
// Its exit code is 1 when there is one.
package main

import (
	"fmt"
	"os"

	"seckill/internal/workshop/bench"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: compare old.json new.json")
		os.Exit(2)
	}
	before, err := bench.ReadReport(os.Args[1])
	if err != nil {
		fail(err)
	}
	after, err := bench.ReadReport(os.Args[2])
	if err != nil {
		fail(err)
	}
	found := bench.Compare(before.Rows, after.Rows)
	fmt.Fprint(os.Stdout, bench.Verdict(found))
	if len(found) > 0 {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "compare:", err)
	os.Exit(1)
}
