package handler

// What the fakes of the tests stand for: what they do not say themselves panics, which is a 500.
type (
	Orders   = orders
	Vouchers = vouchers
	Accounts = accounts
	Draws    = draws
)
