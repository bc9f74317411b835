// Package service is what users and administrators ask for besides orders (vouchers, accounts, payments, refunds,
// redemptions, limits), and operators (health). Storage and payment provider are behind the interfaces of ports.go.
// Below it, sale makes orders, backlog watches the queue, persist makes rows, and repair puts right what is left.
package service
