package command

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"seckill/internal/app"
	"seckill/internal/token"
	"seckill/model"
)

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
		Args: noArgs,
	}
	cmd.Flags().Int64Var(&users, "users", 0, "how many tokens (required)")
	cmd.Flags().Int64Var(&first, "first", 1, "the number of the first user")
	cmd.Flags().StringVar(&role, "role", string(model.RoleUser), "user or admin; viewer, cashier and operator are lesser administrators")
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "groups that the users are in, separated by commas")
	cmd.Flags().DurationVar(&ttl, "ttl", 24*time.Hour, "how long the tokens are valid")
	load := p.settings(cmd, "SECKILL_DATA_DIR", "SECKILL_JWT_ISSUER", "SECKILL_JWT_AUDIENCE")
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
		cfg, err := load()
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
			if _, err := out.WriteString(signed + "\n"); err != nil {
				return fmt.Errorf("print a token: %w", err)
			}
		}
		if err := out.Flush(); err != nil {
			return fmt.Errorf("print the tokens: %w", err)
		}
		return nil
	}
	return cmd
}
