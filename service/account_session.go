package service

import (
	"context"
	"fmt"
	"time"

	"seckill/internal/token"
	"seckill/model"
)

const (
	// sessionLength is how long a login lasts: a flash sale and the day around it,
	// because a user's token is only replaced by another login. NIST SP
	// 800-63B, 4.2.3, allows as much.
	sessionLength = 12 * time.Hour
	// adminSessionLength is how long an administrator's login lasts without a sign of
	// activity: what NIST SP 800-63B, 4.2.3, allows. The console prolongs it, see Renew.
	adminSessionLength = 30 * time.Minute
	// longestAdminSession is how long it lasts with them: a working day, less than the 12
	// hours of the same chapter.
	longestAdminSession = 8 * time.Hour
)

// LongestSession is how long a token may be good for that a login has given.
const LongestSession = max(sessionLength, adminSessionLength)

// session makes a token for an account, of its present version.
func (s *Accounts) session(account model.Account) (Session, error) {
	lasts := sessionLength
	if account.Role == model.RoleAdmin {
		lasts = adminSessionLength
	}
	claims := token.Claims{
		Subject: account.ID, Role: account.Role, Level: account.Grade(), Username: account.Username, Version: account.Version,
		Groups: account.Groups,
	}
	if account.Role == model.RoleAdmin {
		claims.SignedInAt = time.Now()
	}
	signed, err := s.Tokens.Issue(claims, lasts)
	if err != nil {
		return Session{}, err
	}
	return Session{AccessToken: signed, ExpiresIn: lasts}, nil
}

// Renew makes another token for an administrator who was active with one that Admit has let in. It ends 30 minutes from
// now, but never later than 8 hours after the password was given: false says that it would end no later than the one there is.
func (s *Accounts) Renew(claims token.Claims) (session Session, later bool, err error) {
	lasts := min(adminSessionLength, time.Until(claims.SignedInAt.Add(longestAdminSession)))
	if claims.SignedInAt.IsZero() || lasts < time.Until(claims.ExpiresAt)+time.Second {
		return Session{}, false, nil
	}
	signed, err := s.Tokens.Issue(claims, lasts)
	return Session{AccessToken: signed, ExpiresIn: lasts}, err == nil, err
}

// Admit refuses a token that has ended before it expires: UNAUTHENTICATED when its
// account was disabled, deleted or got another password since. It corrects what the token says: an
// administrator's level is that of the account, where the account is asked, and the groups are
// those of an account that was changed since.
//
// What a user may do asks no database: it goes by the changes that this instance
// knows, which are less than a second old. What only an administrator may do is held
// against the account itself, as it was less than a second ago: FORBIDDEN when the
// account is none of an administrator any more, UNAVAILABLE while the database is
// away. Tokens that tell no version are of no account: whoever holds the secret, or
// another issuer, answers for them.
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

// SetGroups says in which groups an account is: in its next token, and within a second on every
// instance. NOT_FOUND: there is no such account.
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

// SignOut ends every token of the account that a token is of, on every instance within a
// second. UNAUTHENTICATED: they have ended before; NOT_FOUND: the token is of no account.
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

// valid reports whether a token is of the account's present version.
func valid(account model.Account, claims token.Claims) bool {
	return !account.Disabled && (claims.Version == 0 || claims.Version == account.Version)
}

func ended() error {
	return &model.Error{Code: model.CodeUnauthenticated, Detail: "The token has ended: log in again."}
}
