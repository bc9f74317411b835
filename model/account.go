package model

import "time"

// Role is what an account may do. An administrator may do what a user may.
type Role string

// The roles.
const (
	RoleUser  Role = "user"
	RoleAdmin Role = "admin"
)

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
	Disabled  bool       `json:"-"` // it cannot log in
	ChangedAt *time.Time `json:"-"` // when an existing account was last changed; nil: never
}
