// Package service is the counter: what users and administrators ask for besides orders (vouchers, accounts, payments,
// refunds, redemptions and limits), and what operators ask for (health). The handlers call it. It knows the rules and the
// order of the steps; storage and the payment provider are behind the interfaces of ports.go. The package sale below it is
// the road of an order, and the package worker does what happens behind the requests.
package service
