// Package service is the counter: what users and administrators ask for besides orders (vouchers, accounts, payments,
// refunds, redemptions and limits), and what operators ask for (health). The handlers call it. It knows the rules and
// the order of the steps; storage and the payment provider are behind the interfaces of ports.go. The package sale
// below it is the road of an order, the package backlog watches the queue, persist makes rows of what is queued, and
// repair puts right what is left behind.
package service
