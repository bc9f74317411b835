package command

import (
	"fmt"
	"runtime"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"seckill/internal/capacity"
	"seckill/model"
)

type capacityOptions struct {
	buyers, vouchers, units, cores int
	seconds, load                  float64
	mode                           string
}

func (p Process) capacityCommand() *cobra.Command {
	var o capacityOptions
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "Say how many instances and servers a sale needs",
		Long: "Says how many instances and servers a sale needs in which so many buyers ask within so many seconds, each once.\n" +
			"It multiplies the microseconds of CPU of an order, by process, that the benchmark has measured; see\n" +
			"deployments/capacity.md for what that leaves out.",
		Args: noArgs,
	}
	cmd.Flags().IntVar(&o.buyers, "buyers", 0, "how many ask")
	cmd.Flags().Float64Var(&o.seconds, "seconds", 1, "within how many seconds")
	cmd.Flags().IntVar(&o.vouchers, "vouchers", 1, "how many vouchers are on sale at once")
	cmd.Flags().IntVar(&o.units, "units", 0, "how many units there are together; 0: as many as buyers")
	cmd.Flags().StringVar(&o.mode, "mode", string(model.ModeAsync), "the order mode: sync or async")
	cmd.Flags().IntVar(&o.cores, "cores", runtime.NumCPU(), "the cores of a machine")
	cmd.Flags().Float64Var(&o.load, "load", 0.5, "how busy its cores may be, up to 1")
	cmd.RunE = func(*cobra.Command, []string) error { return p.capacity(o) }
	return cmd
}

func (p Process) capacity(o capacityOptions) error {
	if o.buyers < 1 || o.units < 0 || !(o.seconds > 0) {
		return misused("--buyers and --seconds must be positive, and --units not negative")
	}
	accepted := o.buyers
	if o.units > 0 {
		accepted = min(accepted, o.units)
	}
	costs, err := capacity.Recorded()
	if err != nil {
		return err
	}
	plan, err := costs.Plan(capacity.Question{
		Mode: model.OrderMode(o.mode), Vouchers: o.vouchers, Cores: o.cores, Load: o.load,
		Orders: float64(accepted) / o.seconds, Refusals: float64(o.buyers-accepted) / o.seconds,
	})
	if model.CodeOf(err) == model.CodeValidation {
		return misused("%s", explain(err))
	}
	if err != nil {
		return err
	}
	return p.showPlan(costs, plan)
}

func (p Process) showPlan(costs capacity.Costs, plan capacity.Plan) error {
	fmt.Fprintf(p.Stdout, "%.0f orders and %.0f refusals a second, %d vouchers at once, order mode %s.\n", plan.Orders, plan.Refusals, plan.Vouchers, plan.Mode)
	fmt.Fprintf(p.Stdout, "Machines with %d cores like %s, which may be %.0f %% busy; measured at commit %s.\n\n", plan.Cores, costs.CPU, 100*plan.Load, costs.Commit)
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "process\tµs an order\tcores busy\tservers\tcores of each\t")
	cluster := 1
	for _, need := range plan.Needs {
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%d\t%d\t\n", need.Process, need.Cost, need.Cores, need.Servers, need.Each)
		if need.Process == "Redis" && need.Servers > 1 {
			cluster = need.Servers
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if cluster > 1 {
		fmt.Fprintf(p.Stdout, "\nOne Redis is not enough. A Cluster of %d primaries shares out the vouchers; each of them stays on one.\n", cluster)
	}
	return nil
}
