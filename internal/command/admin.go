package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"seckill/config"
	"seckill/internal/app"
)

// maxPasswordInput bounds what is read for a password, in bytes: 128
// characters of UTF-8, and enough beyond them to see that there are more.
const maxPasswordInput = 1024

func (p Process) adminCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Manage administrators",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return misused("admin needs a command: create") },
	}
	cmd.AddCommand(p.adminCreateCommand())
	return cmd
}

func (p Process) adminCreateCommand() *cobra.Command {
	var username string
	cmd := &cobra.Command{
		Use:   "create --username U",
		Short: "Create an administrator; the password is read from the terminal or stdin",
		Long: "Creates an administrator. The password (10 to 128 characters) is asked for on a terminal, without\n" +
			"showing it, and is otherwise the first line of stdin.",
		Example: "  seckill admin create --username root < password.txt",
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&username, "username", "", "3 to 32 of A-Z a-z 0-9 . _ - (required)")
	load := p.settings(cmd, "SECKILL_DATA_DIR", "SECKILL_MIGRATE")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if username == "" {
			return misused("--username is required")
		}
		cfg, err := load(config.WithoutTokens())
		if err != nil {
			return err
		}
		return p.createAdmin(cmd.Context(), cfg, username)
	}
	return cmd
}

func (p Process) createAdmin(ctx context.Context, cfg config.Config, username string) error {
	secret, err := p.readPassword(ctx)
	if err != nil {
		return err
	}
	return p.withDatabase(ctx, cfg, func(db *app.Database) error {
		if cfg.Migrate {
			if err := db.Migrate(ctx); err != nil {
				return err
			}
		}
		admin, err := db.CreateAdmin(ctx, username, secret)
		if err != nil {
			return err // it says what was tried
		}
		_, err = fmt.Fprintf(p.Stdout, "created the administrator %s (id %s)\n", admin.Username, admin.ID)
		return err
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
