// Package service answers what users and administrators ask for: orders, vouchers
// and accounts. It knows the rules and the order of the steps. Storage, locks and
// the wire are behind the interfaces of ports.go. The package cache below it holds
// one instance's cache entries, and the package worker does what no request waits for.
package service
