package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"seckill/config"
	"seckill/internal/app"
	"seckill/internal/budget"
	"seckill/internal/token"
	"seckill/model"
)

const maxPasswordInput = 1024 // bytes: 128 characters of UTF-8, and some to see more

func (p Process) adminCommand() *cobra.Command {
	list := p.onAdmins(&cobra.Command{
		Use:   "list",
		Short: "List the administrators",
		Long: "Lists the administrators that have an account. A token of `seckill token --role admin` has none: whoever\n" +
			"holds the secret that signs tokens may make them.",
	}, nil, p.listAdmins)
	disable := p.oneAdmin(&cobra.Command{
		Use:   "disable --username U",
		Short: "Disable an administrator, who is out within a second",
		Long: "Disables an administrator: no login, and every token of the account ends within a second, also on running\n" +
			"servers.",
	}, nil, nil, setDisabled(true, "disabled"))
	enable := p.oneAdmin(&cobra.Command{
		Use:   "enable --username U",
		Short: "Enable a disabled administrator, who has to log in again",
	}, nil, nil, setDisabled(false, "enabled"))
	var secret string
	passwd := p.oneAdmin(&cobra.Command{
		Use:   "passwd --username U",
		Short: "Replace an administrator's password, which ends the account's tokens",
		Long: "Replaces the password of an administrator. It is read as by `seckill admin create`. Every token of the account\n" +
			"ends within a second, also on running servers.",
		Example: "  seckill admin passwd --username root < password.txt",
	}, nil, &secret, func(ctx context.Context, db *app.Database, username string) (string, error) {
		err := db.Administrators().SetPassword(ctx, username, secret)
		return "replaced the password of the administrator " + username + "; log in again", err
	})
	role, changed := string(model.LevelAdmin), ""
	create := p.oneAdmin(&cobra.Command{
		Use:   "create --username U",
		Short: "Create an administrator; the password is read from the terminal or stdin",
		Long: "Creates an administrator, who may do everything, or what --role says. The password (10 to 128 characters)\n" +
			"is asked for on a terminal, without showing it, and is otherwise the first line of stdin.",
		Example: "  seckill admin create --username root < password.txt\n" +
			"  seckill admin create --username till1 --role cashier",
	}, &role, &secret, func(ctx context.Context, db *app.Database, username string) (string, error) {
		admin, err := db.Administrators().Create(ctx, username, secret, model.Level(role))
		return fmt.Sprintf("created the administrator %s (id %s)", admin.Username, admin.ID), err
	})
	change := p.oneAdmin(&cobra.Command{
		Use:   "role --username U --role R",
		Short: "Change what an administrator may do",
		Long: "Changes what an administrator may do, within a second, also on running servers. Nobody has to log in\n" +
			"again.",
	}, &changed, nil, func(ctx context.Context, db *app.Database, username string) (string, error) {
		_, err := db.Administrators().SetLevel(ctx, username, model.Level(changed))
		return "the administrator " + username + " has the role " + changed, err
	})
	return group("admin", "Manage administrators", "", create, list, change, disable, enable, passwd)
}

// userCommand works in the database, where a user has orders, places and an account: a server need not run.
func (p Process) userCommand() *cobra.Command {
	one := func(use, short, long string, work func(ctx context.Context, people *app.People, userID string) error) *cobra.Command {
		var id string
		cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !model.ValidUserID(args[0]) {
				return misused("name one user's id")
			}
			id = args[0]
			return nil
		}}
		return p.onAdmins(cmd, nil, func(ctx context.Context, db *app.Database) error {
			return work(ctx, db.People(slog.New(slog.DiscardHandler)), id)
		})
	}
	return group("user", "Tell what is held of a user, and erase it", "",
		one("export ID", "Write everything that is held of a user as JSON",
			"Writes everything that is held of a user's id, with or without an account.",
			func(ctx context.Context, people *app.People, userID string) error {
				data, err := people.Data(ctx, userID)
				if err != nil {
					return err
				}
				text, err := json.MarshalIndent(data, "", "  ")
				if err != nil {
					return err
				}
				return p.say("%s\n", text)
			}),
		one("erase ID", "Replace a user's id by a random pseudonym, and end the account",
			"Replaces a user's id by one random pseudonym in closed and used orders, places, entries, history and log, and ends the\n"+
				"account. It is refused while orders are live. Repeat it when it was broken off, and after a backup was restored. In the\n"+
				"order mode async, while a sale runs, use DELETE /admin/users/{id}: it also knows the orders that are processing.",
			func(ctx context.Context, people *app.People, userID string) error {
				err := people.Erase(ctx, userID, noAdmin)
				if refusal, ok := errors.AsType[*model.Error](err); ok && len(refusal.OrderIDs) > 0 {
					return fmt.Errorf("%w (%s)", err, strings.Join(refusal.OrderIDs, ", "))
				}
				if err != nil {
					return err
				}
				return p.say("erased the user\n")
			}))
}

// adminWork does something to the administrator of a username, and says what.
type adminWork func(ctx context.Context, db *app.Database, username string) (said string, err error)

// oneAdmin makes a command for one administrator, with a role and a password unless those are nil; an empty role must be
// given.
func (p Process) oneAdmin(cmd *cobra.Command, role, secret *string, work adminWork) *cobra.Command {
	var username string
	cmd.Flags().StringVar(&username, "username", "", "3 to 32 of A-Z a-z 0-9 . _ - (required)")
	if role != nil {
		cmd.Flags().StringVar(role, "role", *role,
			"viewer (sees), cashier (also redeems), operator (also vouchers, stock, pause, refunds) or admin (everything)")
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case role != nil && !slices.Contains(model.Levels(), model.Level(*role)):
			return misused("--role is viewer, cashier, operator or admin, not %q", *role)
		case username == "":
			return misused("--username is required")
		}
		return nil
	}
	return p.onAdmins(cmd, secret, func(ctx context.Context, db *app.Database) error {
		said, err := work(ctx, db, username)
		if err != nil {
			return err
		}
		return p.say("%s\n", said)
	})
}

// onAdmins makes a command work on accounts, whose schema it brings up to date unless that is turned off. Only create
// makes a database: looking for accounts leaves no empty one behind. A password is read first: nothing waits for it.
func (p Process) onAdmins(cmd *cobra.Command, secret *string, work func(ctx context.Context, db *app.Database) error) *cobra.Command {
	p.onSettings(cmd, func(ctx context.Context, cfg config.Config, _ []string) (err error) {
		if secret != nil {
			if *secret, err = p.readPassword(ctx); err != nil {
				return err
			}
		}
		open := p.lookInto
		if cmd.Name() == "create" {
			open = p.withDatabase
		}
		return open(ctx, cfg, func(db *app.Database) error {
			if cfg.Migrate {
				if err := db.Migrate(ctx); err != nil {
					return err
				}
			}
			return work(ctx, db)
		})
	}, "SECKILL_MIGRATE")
	return cmd
}

func (p Process) listAdmins(ctx context.Context, db *app.Database) error {
	admins, err := db.Administrators().List(ctx)
	if err != nil {
		return err
	}
	table := p.table()
	fmt.Fprintln(table, "USERNAME\tID\tROLE\tSTATE\tCREATED")
	for _, a := range admins {
		state := "enabled"
		if a.Disabled {
			state = "disabled"
		}
		created := a.CreatedAt.UTC().Format(time.RFC3339)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", a.Username, a.ID, a.Grade(), state, created)
	}
	return table.Flush()
}

func setDisabled(disabled bool, done string) adminWork {
	return func(ctx context.Context, db *app.Database, username string) (string, error) {
		changed, err := db.Administrators().SetDisabled(ctx, username, disabled)
		if !changed {
			return "the administrator " + username + " is " + done + " already", err
		}
		return done + " the administrator " + username, err
	}
}

// readPassword asks for a password on a terminal, twice because what is typed is not shown, and otherwise reads a line.
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

// askPassword reads from a terminal. An interruption gives the terminal back the way it was, with an echo.
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

func (p Process) tokenCommand() *cobra.Command {
	var (
		users, first int64
		role         string
		groups       []string
		ttl          time.Duration
	)
	cmd := &cobra.Command{
		Use:   "token --users N",
		Short: "Print signed tokens, one a line, for the users first, first+1, …",
		Long: "Prints signed tokens. They are of no account: only their expiry and the replacement of the secret end them,\n" +
			"and no seckill admin command does.",
		Example: "  seckill token --users 2000 > tokens.txt\n" +
			"  ADMIN=$(seckill token --users 1 --role admin)",
	}
	cmd.Flags().Int64Var(&users, "users", 0, "how many tokens (required)")
	cmd.Flags().Int64Var(&first, "first", 1, "the number of the first user")
	cmd.Flags().StringVar(&role, "role", string(model.RoleUser),
		"user or admin; viewer, cashier and operator are lesser administrators")
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "groups that the users are in, separated by commas")
	cmd.Flags().DurationVar(&ttl, "ttl", budget.Day, "how long the tokens are valid")
	load := settings(cmd, "SECKILL_DATA_DIR", "SECKILL_JWT_ISSUER", "SECKILL_JWT_AUDIENCE")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		claims := token.Claims{Role: model.RoleUser, Groups: groups}
		if role != string(model.RoleUser) {
			claims.Role, claims.Level = model.RoleAdmin, model.Level(role)
		}
		switch {
		case users < 1:
			return misused("--users must be at least 1")
		case first < 0 || first > math.MaxInt64-users:
			return misused("--first must be at least 0, and the last user's number an int64")
		case claims.Role != model.RoleUser && !slices.Contains(model.Levels(), claims.Level):
			return misused("--role is user, viewer, cashier, operator or admin, not %q", role)
		case ttl < time.Second:
			return misused("--ttl must be at least 1s")
		case ttl > token.Longest(claims.Role):
			return misused("--ttl must be at most %s for the role %s", token.Longest(claims.Role), role)
		}
		if err, wrong := errors.AsType[*model.Error](model.Groups(groups).Check("--groups")); wrong {
			return misused("--groups %s", err.Fields[0].Message)
		}
		cfg, err := load(p.Environ)
		if err != nil {
			return err
		}
		tokens, err := app.Tokens(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		out := bufio.NewWriter(p.Stdout)
		for user := first; user < first+users; user++ {
			claims.Subject = strconv.FormatInt(user, 10)
			signed, err := tokens.Issue(claims, ttl)
			if err != nil {
				return err
			}
			fmt.Fprintln(out, signed) // what fails shows at the end
		}
		return out.Flush()
	}
	return cmd
}
