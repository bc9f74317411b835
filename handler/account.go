package handler

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"seckill/internal/ratelimit"
	"seckill/model"
)

const tagAccounts = "Accounts"

// Sender is where a call comes from. (It is exported because huma does not look into embedded structs that are not.)
type Sender struct {
	network string // that shares a limit
}

// Resolve implements huma.Resolver.
func (s *Sender) Resolve(ctx huma.Context) []error {
	s.network = ratelimit.Network(callOf(ctx.Context()).address)
	return nil
}

// Registration is a new account to be.
type Registration struct {
	Username string `json:"username" pattern:"^[A-Za-z0-9._-]{3,32}$" patternDescription:"3 to 32 of A-Z a-z 0-9 . _ -" doc:"Unique without regard to case."`
	Password string `json:"password" minLength:"10" maxLength:"128" format:"password" doc:"Its characters are counted and compared in the spelling NFKC."`
}

// Credentials are a username and its password, without limits: an ill-formed password is a wrong one, 401 too.
type Credentials struct {
	Username string `json:"username"`
	Password string `json:"password" format:"password"`
}

// PasswordChange replaces a password. The current one has no limits, as at a login.
type PasswordChange struct {
	Current string `json:"current" format:"password"`
	New     string `json:"new" minLength:"10" maxLength:"128" format:"password" doc:"Its characters are counted and compared in the spelling NFKC."`
}

// Session is a login.
type Session struct {
	AccessToken string `json:"access_token" doc:"A JWT for the header Authorization: Bearer."`
	TokenType   string `json:"token_type" example:"Bearer"`
	ExpiresIn   int64  `json:"expires_in" doc:"How long the token is good for, in seconds."`
}

// Me is what a token says of its user.
type Me struct {
	ID       string      `json:"id"`
	Username string      `json:"username,omitempty" doc:"Of tokens that tell (preferred_username)."`
	Role     model.Role  `json:"role"`
	Groups   []string    `json:"groups,omitempty" doc:"Of tokens that tell: who may buy a voucher that is for groups."`
	Level    model.Level `json:"level,omitempty" doc:"Of an administrator: viewer (sees), cashier (also redeems), operator (also vouchers, stock, pause, refunds) or admin (everything)."`
}

// Grouping says in which groups an account is.
type Grouping struct {
	Groups []string `json:"groups" nullable:"false" maxItems:"20" uniqueItems:"true" minLength:"1" maxLength:"128" example:"[\"gold\"]" doc:"All of them: those before are replaced."`
}

// Member is an account and its groups.
type Member struct {
	ID       string   `json:"id"`
	Username string   `json:"username"`
	Groups   []string `json:"groups" nullable:"false"`
}

func (a *api) accountRoutes() {
	answer(a, route{
		id: "register", call: "POST /auth/register", tag: tagAccounts, access: public, status: http.StatusCreated,
		summary: "Register", description: "The account may buy. Administrators are made on the command line alone.",
		codes: []model.Code{model.CodeConflict, model.CodeUnavailable},
	}, func(ctx context.Context, in *sentFrom[Registration]) (model.Account, error) {
		return a.options.Accounts.Register(ctx, in.network, in.Body.Username, in.Body.Password)
	})
	answer(a, route{
		id: "login", call: "POST /auth/login", tag: tagAccounts, access: public,
		summary: "Log in", description: "Who fails again and again has to wait, never longer than 30 s.",
		codes: []model.Code{model.CodeUnauthenticated, model.CodeUnavailable},
	}, func(ctx context.Context, in *sentFrom[Credentials]) (Session, error) {
		session, err := a.options.Accounts.Login(ctx, in.network, in.Body.Username, in.Body.Password)
		return Session{
			AccessToken: session.AccessToken, TokenType: "Bearer", ExpiresIn: int64(session.ExpiresIn / time.Second),
		}, err
	})
	register(a, route{
		id: "changePassword", call: "POST /auth/password", tag: tagAccounts, access: users,
		status: http.StatusNoContent, summary: "Change the password",
		description: "Ends every token of the account, this one too: log in again. A wrong current password is UNAUTHENTICATED.",
		codes:       []model.Code{model.CodeNotFound},
	}, func(ctx context.Context, in *sentFrom[PasswordChange]) (*struct{}, error) {
		return nil, a.options.Accounts.ChangePassword(ctx, in.network, callOf(ctx).claims, in.Body.Current, in.Body.New)
	})
	answer(a, route{
		id: "me", call: "GET /auth/me", tag: tagAccounts, access: users,
		summary: "Who am I", description: "What the token says; no account is looked up, buyers need none.",
	}, func(ctx context.Context, _ *struct{}) (Me, error) {
		claims := callOf(ctx).claims
		return Me{
			ID: claims.Subject, Username: claims.Username, Role: claims.Role, Groups: claims.Groups,
			Level: claims.Level,
		}, nil
	})
	answer(a, route{
		id: "set-groups", call: "PUT /admin/users/{id}/groups", tag: tagAdmin, access: administrators,
		summary: "Say in which groups an account is",
		description: "Its next token names them. Every instance goes by them within a second, whatever an older token of the account names. " +
			"Users of another issuer get theirs from it: NOT_FOUND.",
		codes: []model.Code{model.CodeNotFound},
	}, func(ctx context.Context, in *sentAbout[Grouping]) (Member, error) {
		account, err := a.options.Accounts.SetGroups(ctx, in.ID, subject(ctx), in.Body.Groups)
		return Member{ID: account.ID, Username: account.Username, Groups: account.Groups}, err
	})
}

func (a *api) personRoutes() {
	answer(a, route{
		id: "user-data", call: "GET /admin/users/{id}/data", tag: tagAdmin, access: administrators, large: true,
		summary: "Tell everything that is held of a user",
		description: "By the user's id, with or without an account. Codes and passwords are left out, and so is an order that is " +
			"still processing. Of a user who has never come it is empty.",
	}, func(ctx context.Context, in *InPath) (model.PersonData, error) {
		return a.options.People.Data(ctx, in.ID)
	})
	register(a, route{
		id: "erase-user", call: "DELETE /admin/users/{id}", tag: tagAdmin, access: administrators,
		status: http.StatusNoContent, summary: "Erase a user",
		description: "One random pseudonym replaces the id in closed and used orders, places, entries, history and log; the account and " +
			"its tokens end. CONFLICT with order_ids while orders are processing, unpaid or paid, or while an entry is not drawn. Repeat " +
			"a call that was broken off.",
		codes: []model.Code{model.CodeConflict},
	}, func(ctx context.Context, in *InPath) (*struct{}, error) {
		return nil, a.options.People.Erase(ctx, in.ID, subject(ctx))
	})
}

type adminLogInput struct {
	Paging
	Actor string `query:"actor" maxLength:"64" doc:"Only what this user has changed."`
}

func (a *api) adminLogRoutes() {
	answer(a, route{
		id: "admin-log", call: "GET /admin/log", tag: tagAdmin, access: administrators, large: true,
		summary:     "List what administrators changed, newest first",
		description: "Vouchers, stocks, rebuilds, refunds, redemptions and rate limits: each entry was written in the transaction of its change.",
		codes:       []model.Code{model.CodeValidation},
	}, func(ctx context.Context, in *adminLogInput) (model.AdminLogPage, error) {
		return a.options.AdminLog(ctx, model.AdminLogQuery{Actor: in.Actor, Cursor: in.Cursor, Limit: in.Limit})
	})
}
