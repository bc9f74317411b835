// Package model holds the words every layer shares: vouchers, orders,
// accounts, and the errors the domain answers with. It depends on nothing but
// the standard library, so that any layer may speak it.
package model
