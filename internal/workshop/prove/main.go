// Command prove runs the tests of the repository and says in a few lines what they showed.
//
//	prove test [-args 'go test arguments'] [packages]   the rules, against real servers (make test)
//	prove faults [-args '...'] [parts]                  what takes long, or breaks servers (make faults)
//	prove parts [-of commit]                            the parts of the faults; of a commit, the one that CI runs
//	prove noise                                         keeps a machine busy until it is interrupted (make noise)
//
// The whole output of each package is kept in a file under bin/tests. The screen has a line for each package, and in
// the end for each failed test its name, its chance, and the command that runs it again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "prove: %v\n", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "prove: %v\n", err)
		os.Exit(1)
	}
}

// errUsage is a wrong command line, and errRed are tests that failed: what failed is on the screen by then.
var (
	errUsage = errors.New("usage: prove test|faults|parts|noise")
	errRed   = errors.New("tests failed")
)

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	more := flags.String("args", "", "further arguments for go test")
	commit := flags.String("of", "", "name only the part that belongs to this commit")
	if err := flags.Parse(args[1:]); err != nil {
		return errUsage
	}
	switch args[0] {
	case "test":
		return test(ctx, flags.Args(), strings.Fields(*more))
	case "faults":
		return faults(ctx, flags.Args(), strings.Fields(*more))
	case "parts":
		return tellParts(os.Stdout, *commit)
	case "noise":
		return noise(ctx)
	default:
		return errUsage
	}
}
