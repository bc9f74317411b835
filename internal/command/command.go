// Package command is what the command line does, one file per command, and the
// wiring of a running service (instance.go): the only package that knows all
// the others.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"seckill/internal/failpoint"
)

// The exit codes, as the contract fixes them.
const (
	exitOK    = 0
	exitError = 1 // it did not work, or did not add up
	exitUsage = 2 // it was called wrongly
)

// Process is what a command has of the world, so that a test can give it
// another one.
type Process struct {
	Args    []string // without the program's name
	Environ []string // as of os.Environ
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// Run runs one command to its end, which ctx may bring nearer, and returns the
// exit code.
func Run(ctx context.Context, p Process) int {
	p.Environ = failpoint.Without(p.Environ)
	root := newRoot(p) //nolint:contextcheck // cobra hands the context to the commands
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(p.Stderr, "seckill: interrupted")
		return exitError
	}
	fmt.Fprintf(p.Stderr, "seckill: %s\n", explain(err))
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(p.Stderr, "Run '%s --help' for how it is used.\n", cmd.CommandPath())
		return exitUsage
	}
	return exitError
}

func newRoot(p Process) *cobra.Command {
	root := &cobra.Command{
		Use:   "seckill",
		Short: "A flash-sale backend: it sells exactly what there is, once to each",
		Long: "seckill sells a few hundred vouchers to thousands who press the button in the same second:\n" +
			"each user gets at most one, nobody gets one too many, and what was promised is kept.\n\n" +
			"Without a command it serves. Without settings it runs embedded, for trying out.\n" +
			"'seckill config' lists the settings.",
		SilenceErrors:     true, // Run prints them
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	p.serveOn(root)
	root.AddCommand(
		p.serveCommand(), p.demoCommand(), p.tokenCommand(), p.adminCommand(),
		p.migrateCommand(), p.modeCommand(), p.auditCommand(), p.deadlettersCommand(), p.configCommand(), p.labCommand(),
	)
	return root
}

// usageError is a command that was called wrongly.
type usageError struct{ err error }

// Error implements error.
func (e *usageError) Error() string { return e.err.Error() }

// Unwrap gives the cause to errors.Is and errors.As.
func (e *usageError) Unwrap() error { return e.err }

func misused(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// noArgs refuses words that are neither a command nor a flag, and says which
// command may have been meant.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return misused("%s takes no argument %q", cmd.CommandPath(), args[0])
	}
	hint := ""
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		hint = "; did you mean " + strings.Join(like, " or ") + "?"
	}
	return misused("%s has no command %q%s", cmd.CommandPath(), args[0], hint)
}

// onTerminal reports whether a person looks at what is written.
func onTerminal(w any) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && isatty.IsTerminal(file.Fd())
}
