// Package command is what the command line does, one file per noun.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	_ "golang.org/x/crypto/x509roots/fallback" // the authorities of the web, where a root has none: an image, for example

	"seckill/config"
	"seckill/internal/api"
	"seckill/internal/app"
	"seckill/internal/embedded"
	"seckill/internal/failpoint"
	"seckill/internal/redact"
	"seckill/internal/tracing"
	"seckill/internal/version"
	"seckill/model"
)

// The exit codes, as the contract fixes them.
const (
	exitOK    = 0
	exitError = 1 // it did not work, or did not add up
	exitUsage = 2 // it was called wrongly
)

// Process is what a command has of the world, so that a test can give it another one.
type Process struct {
	Args    []string // without the program's name
	Environ []string // as of os.Environ
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer

	secrets *redact.Secrets // of the environment and the arguments: they are in no record and no error
}

// Run runs one command to its end, which ctx may bring nearer, and returns the exit code.
func Run(ctx context.Context, p Process) int {
	embedded.OwnFilesOnly()
	p.Environ = failpoint.Without(p.Environ)
	p.secrets = redact.New(append(config.Secrets(p.Environ), argumentSecrets(p.Args)...)...)
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
	fmt.Fprintf(p.Stderr, "seckill: %s\n", p.secrets.Text(explain(err)))
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(p.Stderr, "Run '%s --help' for how it is used.\n", cmd.CommandPath())
		return exitUsage
	}
	return exitError
}

// argumentSecrets are those in URLs and DSNs that stand on the command line.
func argumentSecrets(args []string) []string {
	var found []string
	for _, arg := range args {
		if _, value, isFlag := strings.Cut(arg, "="); isFlag && strings.HasPrefix(arg, "-") {
			arg = value
		}
		found = append(append(found, redact.OfURLs(arg)...), redact.OfDSN(arg)...)
	}
	return found
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
	serve := p.serveCommand()
	root.RunE = serve.RunE
	root.Flags().AddFlagSet(serve.Flags())
	root.AddCommand(
		serve, p.readyCommand(), p.demoCommand(), p.tokenCommand(), p.adminCommand(), p.userCommand(),
		p.migrateCommand(), p.modeCommand(), p.auditCommand(), p.deadlettersCommand(), p.eventsCommand(), p.drawCommand(),
		p.configCommand(), p.versionCommand(), p.manCommand(),
	)
	withoutArgs(root)
	return root
}

// withoutArgs has commands that name no arguments refuse all.
func withoutArgs(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = noArgs
	}
	for _, member := range cmd.Commands() {
		withoutArgs(member)
	}
}

type usageError struct{ error }

// Unwrap gives the cause to errors.Is and errors.As.
func (e *usageError) Unwrap() error { return e.error }

func misused(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// explain words an error for people: what was tried, the domain's answer, and what went wrong underneath.
func explain(err error) string {
	answer, ok := errors.AsType[*model.Error](err)
	if !ok {
		return err.Error()
	}
	text := answer.Detail
	if len(answer.Fields) > 0 {
		messages := make([]string, len(answer.Fields))
		for i, field := range answer.Fields {
			messages[i] = field.Message
		}
		text = strings.Join(messages, " ")
	}
	if answer.Cause != nil {
		text += " (" + answer.Cause.Error() + ")"
	}
	return strings.Replace(err.Error(), answer.Error(), text, 1)
}

// noArgs refuses words that are neither a command nor a flag, and says which command may have been meant.
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

// loader reads settings from an environment and the flags of a command.
type loader func(environ []string, options ...config.Option) (config.Config, error)

// settings gives a command the flags of the named settings, or of all but secrets, and returns how to load them.
func settings(cmd *cobra.Command, variables ...string) loader {
	values := make(map[string]*string)
	for _, s := range config.Table() {
		if s.Flag == "" || len(variables) > 0 && !slices.Contains(variables, s.Variable) {
			continue
		}
		// A word in backquotes would be taken for the name of the value.
		meaning := strings.ReplaceAll(s.Meaning+" ["+s.Variable+"] (default "+s.Default+")", "`", "")
		values[s.Variable] = cmd.Flags().String(s.Flag, "", meaning)
	}
	return func(environ []string, options ...config.Option) (config.Config, error) {
		set := make(map[string]string, len(values))
		for variable, value := range values {
			set[variable] = *value
		}
		return config.Load(environ, append(options, config.Flags(set))...)
	}
}

// onSettings makes a command work with the settings of a database, and with more of them.
func (p Process) onSettings(
	cmd *cobra.Command, work func(ctx context.Context, cfg config.Config, args []string) error, more ...string,
) {
	load := settings(cmd, append([]string{"SECKILL_DATA_DIR"}, more...)...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := load(p.Environ, config.WithoutTokens())
		if err != nil {
			return err
		}
		return work(cmd.Context(), cfg, args)
	}
}

// newLogger writes records to standard error in the format of the settings, without the environment's secrets.
func (p Process) newLogger(cfg config.Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel}
	var handler slog.Handler = slog.NewJSONHandler(p.Stderr, options)
	if cfg.LogFormat == config.LogText || cfg.LogFormat == "" && onTerminal(p.Stderr) {
		handler = slog.NewTextHandler(p.Stderr, options)
	}
	handler = p.secrets.Handler(handler)
	if cfg.Tracing.On {
		handler = tracing.Handler(handler)
	}
	return slog.New(handler)
}

// group is a command of commands, of which one must be named.
func group(name, short, long string, members ...*cobra.Command) *cobra.Command {
	names := make([]string, len(members))
	for i, member := range members {
		names[i] = member.Name()
	}
	choice := names[0]
	if last := len(names) - 1; last > 0 {
		choice = strings.Join(names[:last], ", ") + " or " + names[last]
	}
	cmd := &cobra.Command{Use: name, Short: short, Long: long, RunE: func(*cobra.Command, []string) error {
		return misused("%s needs a command: %s", name, choice)
	}}
	cmd.AddCommand(members...)
	return cmd
}

// serverAt is a client without a token of the server that --url names, and its connections.
func serverAt(text string) (api.Client, *http.Transport, error) {
	target, err := url.Parse(text)
	if err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "" {
		return api.Client{}, nil, misused("--url is not a URL such as http://127.0.0.1:8080")
	}
	transport := api.Transport(1)
	return api.Client{Base: target.Scheme + "://" + target.Host, HTTP: &http.Client{Transport: transport}}, transport,
		nil
}

func (p Process) say(format string, args ...any) error {
	_, err := fmt.Fprintf(p.Stdout, format, args...)
	return err
}

func (p Process) table() *tabwriter.Writer { return tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0) }

// onTerminal reports whether a person looks at what is written.
func onTerminal(w any) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && isatty.IsTerminal(file.Fd())
}

// withDatabase opens the database of the settings for one piece of work, and keeps from people what servers log.
func (p Process) withDatabase(ctx context.Context, cfg config.Config, work func(db *app.Database) error) error {
	cfg.LogLevel = max(cfg.LogLevel, slog.LevelWarn)
	db, err := app.OpenDatabase(ctx, cfg, p.newLogger(cfg))
	if err != nil {
		return err
	}
	err = work(db)
	if closed := db.Close(); closed != nil {
		err = errors.Join(err, fmt.Errorf("close the database: %w", closed))
	}
	return err
}

// lookInto is withDatabase of one that must be there: looking leaves no empty database behind.
func (p Process) lookInto(ctx context.Context, cfg config.Config, work func(db *app.Database) error) error {
	if err := app.DatabaseExists(cfg); err != nil {
		return err
	}
	return p.withDatabase(ctx, cfg, work)
}

// withAsyncParts opens what is behind asynchronous orders for one piece of work.
func (p Process) withAsyncParts(ctx context.Context, cfg config.Config, work func(a *app.AsyncParts) error) error {
	cfg.LogLevel = max(cfg.LogLevel, slog.LevelError)
	return app.WithAsyncParts(ctx, cfg, p.newLogger(cfg), work)
}

func (p Process) configCommand() *cobra.Command {
	var markdown bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the effective settings, secrets redacted",
		Long: "Shows every setting with its variable, its effective value, where the value comes from (default, env,\n" +
			"file or flag), its unit and its meaning. Variables that hold secrets may be replaced by ones that end\n" +
			"in _FILE and name a file. Secrets are redacted.",
	}
	cmd.Flags().BoolVar(&markdown, "markdown", false, "show the table of settings for documents instead")
	load := settings(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if markdown {
			return p.say("%s", config.Markdown())
		}
		cfg, err := load(p.Environ)
		if err != nil {
			return err
		}
		table := p.table()
		fmt.Fprintln(table, "VARIABLE\tVALUE\tSOURCE\tUNIT\tMEANING")
		for _, s := range cfg.Settings() {
			fmt.Fprintln(table, strings.ReplaceAll(
				strings.Join([]string{s.Variable, s.Value, string(s.Source), s.Unit, s.Meaning}, "\t"), "`", ""))
		}
		return table.Flush()
	}
	return cmd
}

// manCommand is for releases; the date of the pages is SOURCE_DATE_EPOCH (reproducible-builds.org).
func (p Process) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIRECTORY", Short: "Write the manual pages", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return doc.GenManTree(cmd.Root(), &doc.GenManHeader{Section: "1", Source: "seckill"}, args[0])
		},
	}
}

func (p Process) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version, the commit and the version of Go",
		Long: "Shows which build this is, as the Go toolchain has written it into the program: the version, the commit of the\n" +
			"source and the version of Go. /readyz, the console and the metric seckill_build_info say the same of a server.",
		RunE: func(*cobra.Command, []string) error {
			return p.say("seckill %s\n", version.Read())
		},
	}
}
