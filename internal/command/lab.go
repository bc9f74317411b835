package command

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"seckill/internal/redisdb"

	"github.com/spf13/cobra"

	"seckill/internal/lab"
)

func (p Process) labCommand() *cobra.Command {
	var (
		options   lab.Options
		redisURLs string
		asJSON    bool
	)
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "The lock laboratory: every lock and stock strategy, right and wrong, on the same work",
		Long: "Lets workers add to one account and sell one stock under every strategy: the broken ones of the\n" +
			"tutorials and the real ones of this program. Each first meets the interleavings that break the broken\n" +
			"ones, forced and not left to luck; then it runs freely, for throughput and waiting.\n\n" +
			"It runs embedded and needs nothing; where MariaDB is installed it starts one of its own. What it makes elsewhere (keys below seckill:lab:<id>:, a schema\n" +
			"seckill_lab_<id>) it removes. The exit code is 1 when a broken strategy does not show its defect, or a\n" +
			"real one does.",
		Example: "  seckill lab\n" +
			"  seckill lab --redis redis://a:6379,redis://b:6379,redis://c:6379 --dsn 'root:pw@tcp(127.0.0.1:3306)/'",
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&redisURLs, "redis", "", "one Redis URL, or three separated by commas for the quorum rows too (default embedded)")
	flags.StringVar(&options.DSN, "dsn", "", "go-sql-driver DSN of an account that may make a schema, for the rows that need MySQL")
	flags.BoolVar(&options.Real, "real", false, "also locks whose replica is promoted, and a split brain, with redis-servers of the lab's own")
	flags.BoolVar(&asJSON, "json", false, "print the report as JSON")
	flags.IntVar(&options.Workers, "workers", 8, "how many work on one account, half of them in each of two processes")
	flags.IntVar(&options.Operations, "operations", 50, "operations of each worker")
	flags.DurationVar(&options.Duration, "duration", 2*time.Second, "after this no worker of a row begins another operation")
	flags.DurationVar(&options.Think, "think", 200*time.Microsecond, "the longest time between reading and writing")
	flags.Uint64Var(&options.Seed, "seed", 1, "seed of the think times")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if options.Workers == 0 || options.Operations == 0 || options.Duration <= 0 || options.Think <= 0 {
			return misused("--workers, --operations, --duration and --think must be greater than 0")
		}
		for url := range strings.SplitSeq(redisURLs, ",") {
			if url = strings.TrimSpace(url); url != "" {
				options.Redis = append(options.Redis, url)
			}
		}
		var err error
		if options.Spawn, err = lab.Itself(); err != nil {
			return err
		}
		if err := options.Check(); err != nil {
			return misused("%w", err)
		}
		// What matters of the client's remarks comes back as errors too.
		redisdb.Log(slog.New(slog.DiscardHandler))
		options.OwnDatabase, options.Compare = options.DSN == "", true
		options.Progress = lab.NewProgress(p.Stderr, onTerminal(p.Stderr))
		report, err := lab.Run(cmd.Context(), options)
		if err != nil {
			return err
		}
		if asJSON {
			err = json.NewEncoder(p.Stdout).Encode(report)
		} else {
			err = report.Write(p.Stdout)
		}
		if err != nil {
			return err
		}
		return labVerdict(report)
	}
	cmd.AddCommand(p.labChildCommand())
	return cmd
}

// labVerdict is the error of a laboratory whose rows are not as they should be.
func labVerdict(report lab.Report) error {
	var wrong []string
	for _, row := range report.Rows {
		if !row.OK() {
			wrong = append(wrong, fmt.Sprintf("%s: %s", row.Name, row.Verdict))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the laboratory is not as it should be: %s", strings.Join(wrong, "; "))
}

// labChildCommand is the hidden one by which the lab starts itself again.
func (p Process) labChildCommand() *cobra.Command {
	return &cobra.Command{
		Use:    lab.Child,
		Short:  "A process of the laboratory, told what to do on its standard input",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lab.RunChild(cmd.Context(), p.Stdin, p.Stdout)
		},
	}
}
