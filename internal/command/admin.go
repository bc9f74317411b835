package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"seckill/config"
	"seckill/internal/app"
	"seckill/model"
)

// maxPasswordInput bounds what is read for a password, in bytes: 128
// characters of UTF-8, and enough beyond them to see that there are more.
const maxPasswordInput = 1024

func (p Process) adminCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Manage administrators",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			return misused("admin needs a command: create, list, role, disable, enable or passwd")
		},
	}
	cmd.AddCommand(
		p.adminCreateCommand(), p.adminListCommand(), p.adminRoleCommand(),
		p.adminDisableCommand(), p.adminEnableCommand(), p.adminPasswdCommand(),
	)
	return cmd
}

func (p Process) adminCreateCommand() *cobra.Command {
	return p.graded(string(model.LevelAdmin), &cobra.Command{
		Use:   "create --username U",
		Short: "Create an administrator; the password is read from the terminal or stdin",
		Long: "Creates an administrator, who may do everything, or what --role says. The password (10 to 128 characters) is asked for on a terminal, without\n" +
			"showing it, and is otherwise the first line of stdin.",
		Example: "  seckill admin create --username root < password.txt\n" +
			"  seckill admin create --username till1 --role cashier",
	}, p.createAdmin)
}

func (p Process) adminRoleCommand() *cobra.Command {
	return p.graded("", &cobra.Command{
		Use:   "role --username U --role R",
		Short: "Change what an administrator may do",
		Long:  "Changes what an administrator may do, within a second, also on running servers. Nobody has to log in again.",
	}, func(ctx context.Context, cfg config.Config, username string, level model.Level) error {
		return p.withAccounts(ctx, cfg, func(db *app.Database) error {
			_, err := db.Administrators().SetLevel(ctx, username, level)
			if err != nil {
				return err
			}
			return p.say("the administrator %s has the role %s\n", username, level)
		})
	})
}

// graded makes a command that gives an administrator a role; without a default, --role is required.
func (p Process) graded(
	unless string, cmd *cobra.Command, work func(ctx context.Context, cfg config.Config, username string, level model.Level) error,
) *cobra.Command {
	var role string
	cmd = p.oneAdmin(cmd, func(ctx context.Context, cfg config.Config, username string) error {
		return work(ctx, cfg, username, model.Level(role))
	})
	cmd.Flags().StringVar(&role, "role", unless,
		"viewer (sees), cashier (also redeems), operator (also vouchers, stock, pause, refunds) or admin (everything)")
	named := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(model.Levels(), model.Level(role)) {
			return misused("--role is viewer, cashier, operator or admin, not %q", role)
		}
		return named(cmd, args)
	}
	return cmd
}

func (p Process) adminListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the administrators",
		Long: "Lists the administrators that have an account. A token of `seckill token --role admin` has none: whoever\n" +
			"holds the secret that signs tokens may make them.",
		Args: noArgs,
	}
	p.onSettings(cmd, func(ctx context.Context, cfg config.Config, _ []string) error { return p.listAdmins(ctx, cfg) }, migrateSetting)
	return cmd
}

func (p Process) adminDisableCommand() *cobra.Command {
	return p.oneAdmin(&cobra.Command{
		Use:   "disable --username U",
		Short: "Disable an administrator, who is out within a second",
		Long:  "Disables an administrator: no login, and every token of the account ends within a second, also on running\nservers.",
	}, p.setDisabled(true, "disabled"))
}

func (p Process) adminEnableCommand() *cobra.Command {
	return p.oneAdmin(&cobra.Command{
		Use:   "enable --username U",
		Short: "Enable a disabled administrator, who has to log in again",
	}, p.setDisabled(false, "enabled"))
}

func (p Process) adminPasswdCommand() *cobra.Command {
	return p.oneAdmin(&cobra.Command{
		Use:     "passwd --username U",
		Short:   "Replace an administrator's password, which ends the account's tokens",
		Long:    "Replaces the password of an administrator. It is read as by `seckill admin create`. Every token of the account\nends within a second, also on running servers.",
		Example: "  seckill admin passwd --username root < password.txt",
	}, p.setPassword)
}

const migrateSetting = "SECKILL_MIGRATE"

// oneAdmin makes a command that works on the administrator of a username.
func (p Process) oneAdmin(cmd *cobra.Command, work func(ctx context.Context, cfg config.Config, username string) error) *cobra.Command {
	var username string
	cmd.Args = noArgs
	cmd.Flags().StringVar(&username, "username", "", "3 to 32 of A-Z a-z 0-9 . _ - (required)")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if username == "" {
			return misused("--username is required")
		}
		return nil
	}
	p.onSettings(cmd, func(ctx context.Context, cfg config.Config, _ []string) error { return work(ctx, cfg, username) }, migrateSetting)
	return cmd
}

func (p Process) createAdmin(ctx context.Context, cfg config.Config, username string, level model.Level) error {
	secret, err := p.readPassword(ctx)
	if err != nil {
		return err
	}
	return p.withSchema(ctx, cfg, func(db *app.Database) error {
		admin, err := db.Administrators().Create(ctx, username, secret, level)
		if err != nil {
			return err // it says what was tried
		}
		return p.say("created the administrator %s (id %s)\n", admin.Username, admin.ID)
	})
}

func (p Process) listAdmins(ctx context.Context, cfg config.Config) error {
	return p.withAccounts(ctx, cfg, func(db *app.Database) error {
		admins, err := db.Administrators().List(ctx)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "USERNAME\tID\tROLE\tSTATE\tCREATED")
		for _, admin := range admins {
			state := "enabled"
			if admin.Disabled {
				state = "disabled"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", admin.Username, admin.ID, admin.Grade(), state, admin.CreatedAt.UTC().Format(time.RFC3339))
		}
		if err := table.Flush(); err != nil {
			return fmt.Errorf("print the administrators: %w", err)
		}
		return nil
	})
}

// setDisabled makes the work of disabling an administrator, or of enabling one.
func (p Process) setDisabled(disabled bool, done string) func(ctx context.Context, cfg config.Config, username string) error {
	return func(ctx context.Context, cfg config.Config, username string) error {
		return p.withAccounts(ctx, cfg, func(db *app.Database) error {
			changed, err := db.Administrators().SetDisabled(ctx, username, disabled)
			switch {
			case err != nil:
				return err
			case !changed:
				return p.say("the administrator %s is %s already\n", username, done)
			}
			return p.say("%s the administrator %s\n", done, username)
		})
	}
}

func (p Process) setPassword(ctx context.Context, cfg config.Config, username string) error {
	secret, err := p.readPassword(ctx)
	if err != nil {
		return err
	}
	return p.withAccounts(ctx, cfg, func(db *app.Database) error {
		if err := db.Administrators().SetPassword(ctx, username, secret); err != nil {
			return err
		}
		return p.say("replaced the password of the administrator %s; log in again\n", username)
	})
}

func (p Process) say(format string, args ...any) error {
	_, err := fmt.Fprintf(p.Stdout, format, args...)
	return err
}

// withAccounts is withSchema for accounts that are there already: looking for them
// leaves no empty database behind.
func (p Process) withAccounts(ctx context.Context, cfg config.Config, work func(db *app.Database) error) error {
	if err := app.DatabaseExists(cfg); err != nil {
		return err
	}
	return p.withSchema(ctx, cfg, work)
}

// withSchema opens the database and brings its schema up to date, unless that is
// turned off.
func (p Process) withSchema(ctx context.Context, cfg config.Config, work func(db *app.Database) error) error {
	return p.withDatabase(ctx, cfg, func(db *app.Database) error {
		if cfg.Migrate {
			if err := db.Migrate(ctx); err != nil {
				return err
			}
		}
		return work(db)
	})
}

// readPassword asks for a password on a terminal, twice because what is
// typed is not shown, and otherwise reads a line.
func (p Process) readPassword(ctx context.Context) (string, error) {
	file, ok := p.Stdin.(interface{ Fd() uintptr })
	if ok && term.IsTerminal(int(file.Fd())) {
		return p.askPassword(ctx, int(file.Fd()))
	}
	line, err := bufio.NewReader(io.LimitReader(p.Stdin, maxPasswordInput)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the password: %w", err)
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("there is no password: the first line of stdin is empty")
	}
	return line, nil
}

// askPassword reads from a terminal. An interruption gives
// the terminal back the way it was, with an echo.
func (p Process) askPassword(ctx context.Context, fd int) (string, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("look at the terminal: %w", err)
	}
	type typed struct {
		text []byte
		err  error
	}
	var twice [2]string
	for i, prompt := range []string{"Password: ", "Again: "} {
		fmt.Fprint(p.Stderr, prompt)
		read := make(chan typed, 1)
		go func() { // a read cannot be interrupted; this one ends with the process
			text, err := term.ReadPassword(fd)
			read <- typed{text, err}
		}()
		select {
		case t := <-read:
			fmt.Fprintln(p.Stderr)
			if t.err != nil {
				return "", fmt.Errorf("read the password: %w", t.err)
			}
			twice[i] = string(t.text)
		case <-ctx.Done():
			fmt.Fprintln(p.Stderr)
			return "", errors.Join(ctx.Err(), term.Restore(fd, before))
		}
	}
	if twice[0] != twice[1] {
		return "", errors.New("the two passwords differ")
	}
	return twice[0], nil
}
