package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"seckill/internal/redact"
	"seckill/internal/redisdb"
)

const (
	exitError = 1
	exitUsage = 2
)

var errUsage = errors.New("see -help")

func main() {
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	os.Exit(command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// command runs the program, and returns its exit code: 1 when a broken strategy does not show its defect, or a real one
// does; 2 for wrong usage.
func command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	err := try(func() { execute(ctx, args, stdin, stdout, stderr) })
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var secrets []string
	for _, arg := range args {
		_, value, _ := strings.Cut(arg, "=")
		for _, text := range []string{arg, value} {
			secrets = slices.Concat(secrets, redact.OfURLs(text), redact.OfDSN(text))
		}
	}
	fmt.Fprintln(stderr, "lab:", redact.New(secrets...).Text(err.Error()))
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitError
}

func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) {
	if len(args) == 1 && args[0] == childCommand {
		child(ctx, stdin, stdout)
		return
	}
	o := options{log: stderr}
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.SetOutput(stderr)
	urls := flags.String("redis", "", "one Redis `URL`, or three separated by commas for the quorum rows too (default embedded)")
	flags.StringVar(&o.dsn, "dsn", "",
		"go-sql-driver `DSN` of an account that may make a schema (default: a MariaDB of the lab's own, where it is installed)")
	replicas := flags.Bool("real", false,
		"also locks whose replica is promoted, and a split brain, with redis-servers of the lab's own")
	page := flags.String("html", "", "also write the table and the time lines to this `file`")
	flags.IntVar(&o.Workers, "workers", 8, "how many work on one account, half of them in each of two processes")
	flags.IntVar(&o.Operations, "operations", 50, "operations of each worker")
	flags.DurationVar(&o.Duration, "duration", 2*time.Second, "after this no worker of a row begins another operation")
	flags.DurationVar(&o.Think, "think", 200*time.Microsecond, "the longest time between reading and writing")
	if err := flags.Parse(args); err != nil {
		stop(errors.Join(err, errUsage))
	}
	if flags.NArg() > 0 {
		stop(fmt.Errorf("%w: there are no arguments but flags", errUsage))
	}
	o.redis = strings.FieldsFunc(*urls, func(r rune) bool { return r == ',' || r == ' ' })
	o.own = o.dsn == ""
	o.rows = slices.DeleteFunc(catalog(), func(s strategy) bool { return s.replicas && !*replicas }) //nolint:contextcheck // nothing is opened yet
	redisdb.Log(slog.New(slog.DiscardHandler))                                                       // what matters of the client's remarks comes back as errors too
	r, err := experiment(ctx, o)
	stop(err)
	r.write(stdout)
	if *page != "" {
		r.writePage(*page)
	}
	stop(r.verdict())
}
