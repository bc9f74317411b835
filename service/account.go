package service

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"seckill/internal/ids"
	"seckill/internal/password"
	"seckill/internal/telemetry"
	"seckill/internal/token"
	"seckill/model"
	"seckill/service/sale/cache"
)

// Bounds of a password, in characters: the contract's.
const (
	minPassword = 10
	maxPassword = 128
)

// What the metrics of accounts call the calls that hash a password.
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

// Accounts registers people, logs them in, changes their passwords, and knows which
// of their tokens have ended.
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
	caller, err := s.attempts.register(ctx, address)
	if err != nil {
		return model.Account{}, err
	}
	return s.maker.create(ctx, caller, username, secret, model.Account{Role: model.RoleUser})
}

// Login checks a password. Neither the words nor the time of a refusal tell whether
// the name or the password was wrong, or the account is disabled. Addresses and
// accounts that fail again and again have to wait: RATE_LIMITED.
func (s *Accounts) Login(ctx context.Context, address, username, secret string) (session Session, err error) {
	defer func() { s.count(actionLogin, err) }()
	attempt, err := s.attempts.begin(ctx, address, s.maker.key(username))
	if err != nil {
		return Session{}, err
	}
	account, err := s.Store.ByUsername(ctx, username)
	if err != nil && model.CodeOf(err) != model.CodeNotFound {
		attempt.undecided(ctx)
		return Session{}, err
	}
	right, err := s.verify(ctx, attempt, secret, account.PasswordHash)
	if err != nil {
		return Session{}, err
	}
	if !right || account.Disabled {
		s.wrongPassword(ctx, actionLogin, address, username)
		return Session{}, &model.Error{Code: model.CodeUnauthenticated, Detail: "The username or the password is wrong."}
	}
	attempt.succeeded()
	s.Cache.Note(account) // what is remembered of the account may be older than the token to be made
	return s.session(account)
}

// ChangePassword replaces the password of the account that a token is of, and ends
// every token that the account has. A wrong current password is UNAUTHENTICATED, as at
// a login, and counts as a failed one. NOT_FOUND: the token is of no account.
func (s *Accounts) ChangePassword(ctx context.Context, address string, claims token.Claims, current, next string) (err error) {
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
	attempt, err := s.attempts.begin(ctx, address, s.maker.key(account.Username))
	if err != nil {
		return err
	}
	right, err := s.verify(ctx, attempt, current, account.PasswordHash)
	if err != nil {
		return err
	}
	if !right {
		s.wrongPassword(ctx, actionPassword, address, account.Username)
		return &model.Error{Code: model.CodeUnauthenticated, Detail: "The current password is wrong."}
	}
	attempt.succeeded()
	hash, err := s.Hasher.Hash(ctx, attempt.caller, next)
	if err != nil {
		return err
	}
	changed, err := s.Store.Change(ctx, account.ID, account.ID, func(found *model.Account) error {
		if found.Version != account.Version || found.Disabled {
			return ended() // another change was first
		}
		setPassword(found, hash)
		return nil
	})
	if err != nil {
		return err
	}
	s.Cache.Note(changed)
	s.Log.InfoContext(ctx, "password changed", slog.String("user_id", account.ID))
	return nil
}

// verify compares a password. An attempt of which nothing is known does not count.
func (s *Accounts) verify(ctx context.Context, attempt *attempt, secret, hash string) (bool, error) {
	if length(secret) > maxPassword {
		return false, nil // whatever the account
	}
	right, err := s.Hasher.Verify(ctx, attempt.caller, secret, hash)
	if err != nil {
		attempt.undecided(ctx)
	}
	return right, err
}

// wrongPassword logs a failure. What is no username may be a password that was typed
// in the wrong place. The lines are bounded, because those who fail have to wait.
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

// accountMaker makes accounts, whoever asks.
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

// create makes an account that may do what the given one may.
func (m accountMaker) create(ctx context.Context, caller password.Caller, username, secret string, account model.Account) (model.Account, error) {
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

// setPassword replaces a password, which ends the account's tokens.
func setPassword(account *model.Account, hash string) {
	account.PasswordHash = hash
	account.Version++
}
