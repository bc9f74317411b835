// Package service is what people ask the product for: orders, vouchers and
// accounts. It knows the rules and the order of the steps; storage, locks and the
// wire are behind the interfaces of ports.go. What one instance remembers of
// vouchers is in its package cache, and what happens behind the requests in worker.
package service
