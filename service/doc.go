// Package service is what the product does, whoever asks for it: selling,
// looking after vouchers, and accounts. It knows the rules and the order of
// the steps; storage, locks and the wire are behind its dependencies.
package service
