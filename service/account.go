package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/internal/password"
	"seckill/internal/telemetry"
	"seckill/internal/token"
	"seckill/model"
	"seckill/service/sale/cache"
)

const (
	minPassword = 10 // characters, as is maxPassword
	maxPassword = 128
)

const (
	actionRegister = "register"
	actionLogin    = "login"
	actionPassword = "password"
)

// Session is a login.
type Session struct {
	AccessToken string
	ExpiresIn   time.Duration
}

// AccountDeps are what the service of accounts works with; all are required.
type AccountDeps struct {
	Store   AccountStore
	Hasher  Hasher
	Tokens  *token.Authority
	Cache   *cache.Accounts
	Metrics *telemetry.Counters
	Log     *slog.Logger
}

// Accounts registers people, logs them in, changes their passwords, and knows which of their tokens have ended.
type Accounts struct {
	AccountDeps

	maker    accountMaker
	attempts *attempts
}

// NewAccounts makes the service.
func NewAccounts(deps AccountDeps) *Accounts {
	return &Accounts{AccountDeps: deps, maker: newAccountMaker(deps.Store, deps.Hasher), attempts: newAttempts()}
}

// Register makes an account that may buy. The address is the network that asks.
func (s *Accounts) Register(ctx context.Context, address, username, secret string) (account model.Account, err error) {
	defer func() { s.count(actionRegister, err) }()
	if err := s.maker.check(username, "body.password", secret); err != nil {
		return model.Account{}, err
	}
	attempt, err := s.attempts.register(ctx, address)
	if err != nil {
		return model.Account{}, err
	}
	return s.maker.create(ctx, attempt.caller, username, secret, model.Account{Role: model.RoleUser})
}

// Login checks a password. A refusal does not show, not even by its time, what was wrong. After failures: RATE_LIMITED.
func (s *Accounts) Login(ctx context.Context, address, username, secret string) (session Session, err error) {
	defer func() { s.count(actionLogin, err) }()
	attempt, err := s.attempts.login(ctx, address, s.maker.key(username))
	if err != nil {
		return Session{}, err
	}
	account, err := s.Store.ByUsername(ctx, username)
	if err != nil && model.CodeOf(err) != model.CodeNotFound {
		attempt.undecided(ctx)
		return Session{}, err
	}
	right, err := s.verify(ctx, attempt, secret, account)
	if err != nil {
		return Session{}, err
	}
	if !right {
		s.wrongPassword(ctx, actionLogin, address, username)
		return Session{}, unauthenticated("The username or the password is wrong.")
	}
	s.Cache.Note(account) // what is remembered of the account may be older than the token to be made
	return s.session(account)
}

// ChangePassword replaces a password and ends all tokens. A wrong one: UNAUTHENTICATED. NOT_FOUND: there is no account.
func (s *Accounts) ChangePassword(
	ctx context.Context, address string, claims token.Claims, current, next string,
) (err error) {
	defer func() { s.count(actionPassword, err) }()
	if err := checkPassword("body.new", next); err != nil {
		return err
	}
	account, err := s.Store.ByID(ctx, claims.Subject)
	if err != nil {
		return err
	}
	if !valid(account, claims) {
		return ended()
	}
	attempt, err := s.attempts.login(ctx, address, s.maker.key(account.Username))
	if err != nil {
		return err
	}
	right, err := s.verify(ctx, attempt, current, account)
	if err != nil {
		return err
	}
	if !right {
		s.wrongPassword(ctx, actionPassword, address, account.Username)
		return unauthenticated("The current password is wrong.")
	}
	hash, err := s.Hasher.Hash(ctx, attempt.caller, next)
	if err != nil {
		return err
	}
	changed, err := s.Store.Change(ctx, account.ID, account.ID, func(found *model.Account) error {
		if found.Version != account.Version || found.Disabled {
			return ended() // another change was first
		}
		found.PasswordHash = hash
		found.Version++
		return nil
	})
	if err != nil {
		return err
	}
	s.Cache.Note(changed)
	s.Log.InfoContext(ctx, "password changed", slog.String("user_id", account.ID))
	return nil
}

// verify compares a password, which opens no disabled account. An attempt of which nothing is known does not count.
func (s *Accounts) verify(ctx context.Context, attempt *attempt, secret string, account model.Account) (bool, error) {
	if length(secret) > maxPassword {
		return false, nil // whatever the account
	}
	right, err := s.Hasher.Verify(ctx, attempt.caller, secret, account.PasswordHash)
	if err != nil {
		attempt.undecided(ctx)
		return false, err
	}
	if right = right && !account.Disabled; right {
		attempt.succeeded()
	}
	return right, nil
}

// wrongPassword logs a failure. A wrong username may be a password. Failing costs time, which bounds the lines.
func (s *Accounts) wrongPassword(ctx context.Context, action, address, username string) {
	if s.maker.key(username) == "" {
		username = ""
	}
	s.Log.WarnContext(ctx, "wrong password",
		slog.String("action", action), slog.String("address", address), slog.String("username", username))
}

func (s *Accounts) count(action string, err error) {
	outcome := "OK"
	if err != nil {
		outcome = string(model.CodeOf(err))
	}
	s.Metrics.WithLabelValues(action, outcome).Inc()
}

type accountMaker struct {
	store    AccountStore
	hasher   Hasher
	username *regexp.Regexp
}

func newAccountMaker(store AccountStore, hasher Hasher) accountMaker {
	return accountMaker{store: store, hasher: hasher, username: regexp.MustCompile(`^[A-Za-z0-9._-]{3,32}$`)}
}

// key is a username without regard to case; empty when it cannot be one.
func (m accountMaker) key(username string) string {
	if !m.username.MatchString(username) {
		return ""
	}
	return strings.ToLower(username)
}

func (m accountMaker) check(username, location, secret string) error {
	if !m.username.MatchString(username) {
		return model.Invalid("body.username", "A username has 3 to 32 of A-Z a-z 0-9 . _ -")
	}
	return checkPassword(location, secret)
}

func checkPassword(location, secret string) error {
	if n := length(secret); n < minPassword || n > maxPassword {
		return model.Invalid(location, "A password has %d to %d characters.", minPassword, maxPassword)
	}
	return nil
}

// length is a password's, in characters, however it was spelt.
func length(secret string) int { return utf8.RuneCountInString(password.Normal(secret)) }

func (m accountMaker) create(
	ctx context.Context, caller password.Caller, username, secret string, account model.Account,
) (model.Account, error) {
	id, err := ids.New()
	if err != nil {
		return model.Account{}, err
	}
	hash, err := m.hasher.Hash(ctx, caller, secret)
	if err != nil {
		return model.Account{}, err
	}
	account.ID, account.Username, account.PasswordHash = id, username, hash
	if err := m.store.Create(ctx, account); err != nil {
		return model.Account{}, err
	}
	return account, nil
}

const (
	// sessionLength is a login's: a flash sale and the day around it. NIST SP 800-63B, 4.2.3, allows as much.
	sessionLength = budget.Day / 2
	// adminSessionLength is an administrator's without activity (NIST SP 800-63B, 4.2.3). See Renew.
	adminSessionLength = budget.Hour / 2
	// longestAdminSession is how long it lasts with them: a working day, less than the 12 hours of the same chapter.
	longestAdminSession = 8 * budget.Hour
)

// LongestSession is how long a token may be good for that a login has given.
const LongestSession = max(sessionLength, adminSessionLength)

func (s *Accounts) session(account model.Account) (Session, error) {
	lasts := sessionLength
	claims := token.Claims{
		Subject: account.ID, Role: account.Role, Level: account.Grade(), Username: account.Username,
		Version: account.Version, Groups: account.Groups,
	}
	if account.Role == model.RoleAdmin {
		lasts, claims.SignedInAt = adminSessionLength, time.Now()
	}
	signed, err := s.Tokens.Issue(claims, lasts)
	return Session{AccessToken: signed, ExpiresIn: lasts}, err
}

// Renew extends an administrator's session to 30 minutes from now, at most 8 hours after the password; false: no later.
func (s *Accounts) Renew(claims token.Claims) (session Session, later bool, err error) {
	lasts := min(adminSessionLength, time.Until(claims.SignedInAt.Add(longestAdminSession)))
	if claims.SignedInAt.IsZero() || lasts < time.Until(claims.ExpiresAt)+time.Second {
		return Session{}, false, nil
	}
	signed, err := s.Tokens.Issue(claims, lasts)
	return Session{AccessToken: signed, ExpiresIn: lasts}, err == nil, err
}

// Admit refuses a token whose account was disabled, deleted or given another password since: UNAUTHENTICATED. It
// corrects the token's level and groups by the account.
//
// For users it needs no database: it knows changes within a second. For administrators it reads the account, at most a
// second old: FORBIDDEN when it is no administrator's any more, UNAVAILABLE while the database is away. Tokens without
// a version belong to no account: the holder of the secret, or another issuer, answers for them.
func (s *Accounts) Admit(ctx context.Context, claims token.Claims, asAdmin bool) (token.Claims, error) {
	over, groups := s.Cache.Changed(claims.Subject, claims.Version)
	if over {
		return claims, ended()
	}
	if groups != nil && claims.Version > 0 {
		claims.Groups = *groups
	}
	if !asAdmin || claims.Role != model.RoleAdmin || claims.Version == 0 {
		return claims, nil
	}
	account, err := s.Cache.Account(ctx, claims.Subject, claims.Version)
	switch {
	case model.CodeOf(err) == model.CodeNotFound && err != nil:
		return claims, ended()
	case err != nil:
		return claims, fmt.Errorf("check the administrator %s: %w", claims.Subject, err)
	case !valid(account, claims):
		return claims, ended()
	case account.Role != model.RoleAdmin:
		return claims, &model.Error{Code: model.CodeForbidden, Detail: "Only an administrator may do this."}
	}
	claims.Level = account.Grade()
	return claims, nil
}

// SetGroups sets an account's groups, on every instance within a second. NOT_FOUND: there is no such account.
func (s *Accounts) SetGroups(ctx context.Context, id, by string, groups model.Groups) (model.Account, error) {
	if err := groups.Check("body.groups"); err != nil {
		return model.Account{}, err
	}
	changed, err := s.Store.Change(ctx, id, by, func(found *model.Account) error {
		found.Groups = groups
		return nil
	})
	if err != nil {
		return model.Account{}, fmt.Errorf("set the groups of account %s: %w", id, err)
	}
	s.Cache.Note(changed)
	return changed, nil
}

// SignOut ends every token of the account within a second. UNAUTHENTICATED: ended before; NOT_FOUND: no account.
func (s *Accounts) SignOut(ctx context.Context, claims token.Claims) error {
	changed, err := s.Store.Change(ctx, claims.Subject, claims.Subject, func(found *model.Account) error {
		if !valid(*found, claims) {
			return ended()
		}
		found.Version++
		return nil
	})
	if err != nil {
		return fmt.Errorf("sign account %s out: %w", claims.Subject, err)
	}
	s.Cache.Note(changed)
	return nil
}

func valid(account model.Account, claims token.Claims) bool {
	return !account.Disabled && (claims.Version == 0 || claims.Version == account.Version)
}

func ended() error { return unauthenticated("The token has ended: log in again.") }

func unauthenticated(detail string) error {
	return &model.Error{Code: model.CodeUnauthenticated, Detail: detail}
}

// Administrators looks after the accounts of administrators: for the operator, who needs no token, or for one of them.
type Administrators struct {
	accountMaker

	by string // who is logged
}

// NewAdministrators makes the service.
func NewAdministrators(store AccountStore, hasher Hasher) *Administrators {
	return &Administrators{newAccountMaker(store, hasher), model.BySystem}
}

// As is the same for an administrator, who is logged. Nobody changes himself: the last one could not be let in again.
func (s *Administrators) As(adminID string) *Administrators {
	return &Administrators{s.accountMaker, adminID}
}

// Invite ends the tokens and the password of an account, or makes one that has neither. See Accept.
func (s *Administrators) Invite(ctx context.Context, username string, level model.Level) (account model.Account, err error) {
	if level != "" {
		return s.Create(ctx, username, rand.Text(), level) // which nobody knows
	}
	if err := s.SetPassword(ctx, username, rand.Text()); err != nil {
		return account, err
	}
	return s.store.ByUsername(ctx, username)
}

// Accept sets the password of an account that was invited when it had a version. CONFLICT: that was done already.
func (s *Administrators) Accept(ctx context.Context, address, id string, version int64, secret string) error {
	if err := checkPassword("body.password", secret); err != nil {
		return err
	}
	hash, err := s.hasher.Hash(ctx, password.Caller{Address: address}, secret)
	if err != nil {
		return err
	}
	_, err = s.store.Change(ctx, id, id, func(account *model.Account) error {
		if account.Version != version || account.Disabled {
			return model.Conflict("The invitation was used, or withdrawn.")
		}
		account.PasswordHash = hash
		account.Version++
		return nil
	})
	return err
}

// Create makes an administrator's account.
func (s *Administrators) Create(
	ctx context.Context, username, secret string, level model.Level,
) (model.Account, error) {
	if err := model.JoinInvalid(checkLevel(level), s.check(username, "body.password", secret)); err != nil {
		return model.Account{}, err
	}
	return s.create(ctx, password.Caller{}, username, secret, model.Account{Role: model.RoleAdmin, Level: level})
}

func checkLevel(level model.Level) error {
	if !slices.Contains(model.Levels(), level) {
		return model.Invalid("body.role", "must be one of viewer, cashier, operator, admin")
	}
	return nil
}

// SetLevel says what an administrator may do, on every instance within a second. It reports a difference.
func (s *Administrators) SetLevel(ctx context.Context, username string, level model.Level) (changed bool, err error) {
	if err := checkLevel(level); err != nil {
		return false, err
	}
	return s.change(ctx, username, func(account *model.Account) error {
		if account.Grade() == level {
			return errAsItWas
		}
		account.Level = level
		return nil
	})
}

// List lists all of them, by username.
func (s *Administrators) List(ctx context.Context) ([]model.Account, error) {
	return s.store.Administrators(ctx)
}

// SetDisabled disables an account, which ends its tokens for good, or enables it. It reports a difference.
func (s *Administrators) SetDisabled(ctx context.Context, username string, disabled bool) (changed bool, err error) {
	return s.change(ctx, username, func(account *model.Account) error {
		if account.Disabled == disabled {
			return errAsItWas
		}
		account.Disabled = disabled
		if disabled {
			account.Version++
		}
		return nil
	})
}

// SetPassword replaces the password, which ends the account's tokens.
func (s *Administrators) SetPassword(ctx context.Context, username, secret string) error {
	if err := checkPassword("body.password", secret); err != nil {
		return err
	}
	hash, err := s.hasher.Hash(ctx, password.Caller{}, secret)
	if err != nil {
		return err
	}
	_, err = s.change(ctx, username, func(account *model.Account) error {
		account.PasswordHash = hash
		account.Version++
		return nil
	})
	return err
}

var errAsItWas = errors.New("the account is so already")

// change changes an administrator's account, and reports whether that made a difference; NOT_FOUND when there is none.
func (s *Administrators) change(
	ctx context.Context, username string, change func(*model.Account) error,
) (changed bool, err error) {
	account, err := s.store.ByUsername(ctx, username)
	if err != nil && model.CodeOf(err) != model.CodeNotFound {
		return false, err
	}
	if err != nil || account.Role != model.RoleAdmin {
		return false, model.NotFound("administrator")
	}
	if account.ID == s.by {
		return false, model.Conflict("Another administrator has to change your account.")
	}
	if _, err = s.store.Change(ctx, account.ID, s.by, change); errors.Is(err, errAsItWas) {
		return false, nil
	}
	return err == nil, err
}
