package service

import (
	"context"
	"regexp"
	"time"
	"unicode/utf8"

	"seckill/internal/ids"
	"seckill/internal/password"
	"seckill/internal/token"
	"seckill/model"
)

// sessionLength is how long a login lasts: a flash sale and the day around it,
// because a token cannot be renewed, only replaced by another login.
const sessionLength = 12 * time.Hour

// Bounds of a password, in characters: the contract's.
const (
	minPassword = 10
	maxPassword = 128
)

// Session is a login.
type Session struct {
	AccessToken string
	ExpiresIn   time.Duration
}

// Accounts registers people and logs them in.
type Accounts struct {
	store    AccountStore
	hasher   *password.Hasher
	tokens   *token.Authority
	username *regexp.Regexp
}

// NewAccounts makes the service.
func NewAccounts(store AccountStore, hasher *password.Hasher, tokens *token.Authority) *Accounts {
	return &Accounts{
		store:    store,
		hasher:   hasher,
		tokens:   tokens,
		username: regexp.MustCompile(`^[A-Za-z0-9._-]{3,32}$`),
	}
}

// Register makes an account that may buy.
func (s *Accounts) Register(ctx context.Context, username, password string) (model.Account, error) {
	return s.create(ctx, username, password, model.RoleUser)
}

// CreateAdmin makes an account that may do everything.
func (s *Accounts) CreateAdmin(ctx context.Context, username, password string) (model.Account, error) {
	return s.create(ctx, username, password, model.RoleAdmin)
}

func (s *Accounts) create(ctx context.Context, username, secret string, role model.Role) (model.Account, error) {
	if !s.username.MatchString(username) {
		return model.Account{}, model.Invalid("body.username", "A username has 3 to 32 of A-Z a-z 0-9 . _ -")
	}
	if n := utf8.RuneCountInString(secret); n < minPassword || n > maxPassword {
		return model.Account{}, model.Invalid("body.password",
			"A password has %d to %d characters.", minPassword, maxPassword)
	}
	id, err := ids.New()
	if err != nil {
		return model.Account{}, err
	}
	hash, err := s.hasher.Hash(ctx, secret)
	if err != nil {
		return model.Account{}, err
	}
	account := model.Account{ID: id, Username: username, Role: role, PasswordHash: hash}
	if err := s.store.Create(ctx, account); err != nil {
		return model.Account{}, err
	}
	return account, nil
}

// Login checks a password. Neither the words nor the time of a refusal tell whether
// the name or the password was wrong.
func (s *Accounts) Login(ctx context.Context, username, password string) (Session, error) {
	wrong := &model.Error{Code: model.CodeUnauthenticated, Detail: "The username or the password is wrong."}
	account, err := s.store.ByUsername(ctx, username)
	if err != nil && model.CodeOf(err) != model.CodeNotFound {
		return Session{}, err
	}
	if utf8.RuneCountInString(password) > maxPassword {
		return Session{}, wrong
	}
	ok, err := s.hasher.Verify(ctx, password, account.PasswordHash)
	if err != nil {
		return Session{}, err
	}
	if !ok {
		return Session{}, wrong
	}
	claims := token.Claims{Subject: account.ID, Role: account.Role, Username: account.Username}
	signed, err := s.tokens.Issue(claims, sessionLength)
	if err != nil {
		return Session{}, err
	}
	return Session{AccessToken: signed, ExpiresIn: sessionLength}, nil
}
