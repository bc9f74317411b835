package model

import (
	"cmp"
	"slices"
	"time"
)

// Role is what an account may do. An administrator may do what a user may.
type Role string

// The roles.
const (
	RoleUser  Role = "user"
	RoleAdmin Role = "admin"
)

// Level is what an administrator may do: each level does what those before it do, too.
type Level string

// The levels.
const (
	LevelViewer   Level = "viewer"   // sees
	LevelCashier  Level = "cashier"  // also redeems codes
	LevelOperator Level = "operator" // also vouchers, stock, pause, refunds
	LevelAdmin    Level = "admin"    // everything
)

// Levels lists every level, the least first.
func Levels() []Level { return []Level{LevelViewer, LevelCashier, LevelOperator, LevelAdmin} }

// Reaches reports whether a level includes another one. What is no level includes none.
func (l Level) Reaches(least Level) bool {
	have, needed := slices.Index(Levels(), l), slices.Index(Levels(), least)
	return needed >= 0 && have >= needed
}

// Account is a person who can log in. Buyers need none: their tokens may come
// from another issuer.
type Account struct {
	ID           string    `json:"id"`
	Username     string    `json:"username"`
	Role         Role      `json:"role"`
	PasswordHash string    `json:"-"`
	CreatedAt    time.Time `json:"-" gorm:"autoCreateTime:false"`

	// Version is 1 at first and grows with everything that ends the account's
	// tokens: another password, and being disabled. A token tells the version of
	// its account, and ends with it.
	Version   int64      `json:"-"`
	Level     Level      `json:"-"` // of an administrator; empty: admin, see Grade
	Groups    Groups     `json:"-" gorm:"column:group_names"`
	Disabled  bool       `json:"-"` // it cannot log in
	ChangedAt *time.Time `json:"-"` // when an existing account was last changed; nil: never
}

// Grade is what the account may do as an administrator; empty: nothing. Those that were made
// before there were levels have none written down, and may do everything.
func (a Account) Grade() Level {
	if a.Role != RoleAdmin {
		return ""
	}
	return cmp.Or(a.Level, LevelAdmin)
}
