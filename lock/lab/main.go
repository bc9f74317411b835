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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// command runs the program, and returns its exit code: 1 when a broken strategy does not show its
// defect, or a real one does; 2 for wrong usage.
func command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var secrets []string
	for _, arg := range args {
		_, value, _ := strings.Cut(arg, "=")
		for _, text := range []string{arg, value} {
			secrets = append(append(secrets, redact.OfURLs(text)...), redact.OfDSN(text)...)
		}
	}
	err := execute(ctx, args, stdin, stdout, stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(stderr, "lab:", redact.New(secrets...).Text(err.Error()))
		return exitUsage
	}
	fmt.Fprintln(stderr, "lab:", redact.New(secrets...).Text(err.Error()))
	return exitError
}

var errUsage = errors.New("see -help")

func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 1 && args[0] == childCommand {
		return RunChild(ctx, stdin, stdout)
	}
	var (
		o               Options
		redisURLs, page string
	)
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&redisURLs, "redis", "", "one Redis `URL`, or three separated by commas for the quorum rows too (default embedded)")
	flags.StringVar(&o.DSN, "dsn", "", "go-sql-driver `DSN` of an account that may make a schema (default: a MariaDB of the lab's own, where it is installed)")
	flags.BoolVar(&o.Real, "real", false, "also locks whose replica is promoted, and a split brain, with redis-servers of the lab's own")
	flags.StringVar(&page, "html", "", "also write the table and the time lines to this `file`")
	flags.IntVar(&o.Workers, "workers", 8, "how many work on one account, half of them in each of two processes")
	flags.IntVar(&o.Operations, "operations", 50, "operations of each worker")
	flags.DurationVar(&o.Duration, "duration", 2*time.Second, "after this no worker of a row begins another operation")
	flags.DurationVar(&o.Think, "think", 200*time.Microsecond, "the longest time between reading and writing")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the think times")
	if err := flags.Parse(args); err != nil {
		return errors.Join(err, errUsage)
	}
	for url := range strings.SplitSeq(redisURLs, ",") {
		if url = strings.TrimSpace(url); url != "" {
			o.Redis = append(o.Redis, url)
		}
	}
	var err error
	if o.Spawn, err = Itself(); err != nil {
		return err
	}
	if err := o.Check(); err != nil || flags.NArg() > 0 || o.Workers == 0 || o.Operations == 0 || o.Duration <= 0 || o.Think <= 0 {
		return fmt.Errorf("%w: the figures must be greater than 0, and there are no arguments but flags: %w", errUsage, errors.Join(err, nil))
	}
	redisdb.Log(slog.New(slog.DiscardHandler)) // what matters of the client's remarks comes back as errors too
	o.OwnDatabase = o.DSN == ""
	o.Progress = func(done, rows int, r Row, free bool) {
		if free && r.Verdict != "" {
			fmt.Fprintf(stderr, "%2d/%d %s: %s\n", done, rows, r.Name, r.Verdict)
		}
	}
	report, err := Run(ctx, o)
	if err == nil {
		err = report.Write(stdout)
	}
	if err == nil && page != "" {
		err = report.writePage(page)
	}
	if err != nil {
		return err
	}
	return report.verdict()
}

// verdict is the error of a laboratory whose rows are not as they should be.
func (r Report) verdict() error {
	var wrong []string
	for _, row := range r.Rows {
		if !row.OK() {
			wrong = append(wrong, fmt.Sprintf("%s: %s", row.Name, row.Verdict))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the laboratory is not as it should be: %s", strings.Join(wrong, "; "))
}
