package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/internal/app"
	"seckill/internal/demo"
	"seckill/model"
)

// maxDemoBuyers bounds the memory of a demo: each buyer is a goroutine
// with a token and an answer, some 20 kB.
const maxDemoBuyers = 100_000

func (p Process) demoCommand() *cobra.Command {
	var s demo.Sale
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run one flash sale, start to finish, against an embedded server",
		Long: "Starts an embedded server on free ports, with its data in a temporary directory, puts one voucher up\n" +
			"and lets all buyers press the button at the same instant, over real HTTP. Then three independent counts\n" +
			"are compared: the buyers' answers, the orders the server exports, and its audit. Exit 1 when anything is off\n" +
			"by one. Of the environment only SECKILL_ORDER_MODE counts: in async, a buyer who got 202 then waits until the\n" +
			"order is unpaid.",
		Args: noArgs,
	}
	cmd.Flags().IntVar(&s.Buyers, "buyers", 2000, "how many buyers")
	cmd.Flags().Int64Var(&s.Stock, "stock", 100, "how many vouchers")
	flags := settingFlags(cmd, "SECKILL_STOCK_STRATEGY", "SECKILL_ORDER_MODE")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.Buyers < 1 || s.Buyers > maxDemoBuyers {
			return misused("--buyers must be from 1 to %d", maxDemoBuyers)
		}
		if s.Stock < 0 || s.Stock > model.MaxAmount {
			return misused("--stock must be from 0 to %d", int64(model.MaxAmount))
		}
		return p.demo(cmd.Context(), s, flags())
	}
	return cmd
}

// demo starts the server, runs the sale and reports.
func (p Process) demo(ctx context.Context, s demo.Sale, flags map[string]string) (err error) {
	dir, err := os.MkdirTemp("", "seckill-demo-")
	if err != nil {
		return fmt.Errorf("make a temporary directory: %w", err)
	}
	defer func() {
		if removed := os.RemoveAll(dir); removed != nil {
			err = errors.Join(err, fmt.Errorf("remove the temporary directory: %w", removed))
		}
	}()
	flags["SECKILL_DATA_DIR"] = dir
	flags["SECKILL_HTTP_ADDR"] = "127.0.0.1:0"
	flags["SECKILL_OPS_ADDR"] = "127.0.0.1:0"
	flags["SECKILL_RATE_USER"] = "0"
	flags["SECKILL_RATE_ADDR"] = "0"
	flags["SECKILL_LOG_LEVEL"] = "warn"
	environ := slices.DeleteFunc(slices.Clone(p.Environ), func(entry string) bool {
		return !strings.HasPrefix(entry, "SECKILL_ORDER_MODE=")
	})
	cfg, err := config.Load(environ, config.Flags(flags))
	if err != nil {
		return err
	}
	if s.Tokens, err = app.Tokens(ctx, cfg); err != nil {
		return err
	}
	instance, err := app.Start(ctx, cfg, p.newLogger(cfg))
	if err != nil {
		return err
	}
	defer func() {
		// No load balancer must be given time to notice: stop at once.
		done, cancel := context.WithCancel(ctx)
		cancel()
		instance.Stop(done)
	}()
	s.Base, s.Out, s.Bars = instance.BaseURL(), p.Stdout, onTerminal(p.Stdout)
	return s.Run(ctx)
}
