package service

import (
	"context"
	"errors"
	"slices"

	"seckill/internal/password"
	"seckill/model"
)

// Administrators looks after the accounts of administrators. It is for the operator,
// who needs no token.
type Administrators struct{ accountMaker }

// NewAdministrators makes the service.
func NewAdministrators(store AccountStore, hasher Hasher) *Administrators {
	return &Administrators{newAccountMaker(store, hasher)}
}

// Create makes an administrator's account.
func (s *Administrators) Create(ctx context.Context, username, secret string, level model.Level) (model.Account, error) {
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

// SetLevel says what an administrator may do from now on: every instance obeys within a
// second. It reports whether that made a difference.
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

// SetDisabled disables an account, which ends its tokens for good, or enables it. It
// reports whether that made a difference.
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
		setPassword(account, hash)
		return nil
	})
	return err
}

// errAsItWas leaves an account as it is.
var errAsItWas = errors.New("the account is so already")

// change changes an administrator's account, and reports whether that made a difference;
// NOT_FOUND when there is none.
func (s *Administrators) change(ctx context.Context, username string, change func(*model.Account) error) (changed bool, err error) {
	account, err := s.store.ByUsername(ctx, username)
	if err != nil && model.CodeOf(err) != model.CodeNotFound {
		return false, err
	}
	if err != nil || account.Role != model.RoleAdmin {
		return false, model.NotFound("administrator")
	}
	if _, err = s.store.Change(ctx, account.ID, model.BySystem, change); errors.Is(err, errAsItWas) {
		return false, nil
	}
	return err == nil, err
}
