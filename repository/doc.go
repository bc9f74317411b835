// Package repository keeps vouchers, orders and accounts in the database, the only truth of the service. MySQL 8,
// MariaDB 10.6 and newer, and SQLite (embedded) run the same code. A file holds the SQL of one noun. Package sqldb
// below it opens the database and runs transactions; package hotcopy is the Redis half, and neither imports the other.
//
// Read order_create.go first, with stock.go: it makes orders. order_move.go makes
// every later change of their status. sql/ holds the statements that are longer than a line or two.
//
// Every transaction locks the order mode first (shared), then vouchers by id, then orders by voucher and user, then the
// outbox: with one order of locks there are no deadlocks between buyers. Orders whose time has passed come before their
// voucher, whoever moves them: see moveOrders. Its isolation is READ COMMITTED: a read sees what was committed while
// the transaction waited, and no gap is locked.
package repository
