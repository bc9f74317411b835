// Package service answers what users and administrators ask for: orders, vouchers,
// accounts, payments, refunds, redemptions and limits; and what operators do: health. It knows the rules and the order of the steps. Storage, locks and
// the wire are behind the interfaces of ports.go. The package cache below it holds
// one instance's cache entries, and the package worker does what happens behind the requests.
package service
