// Package repository keeps vouchers, orders and accounts in the database, the only truth of the service. MySQL 8,
// MariaDB 10.6 and newer, and SQLite (embedded) run the same code. A file has the SQL of one noun. Package sqldb below
// opens the database and runs transactions; package hotcopy is the Redis half, and neither imports the other.
//
// Read order_create.go first, with stock.go: it makes orders. order_move.go makes every later change of their status.
// sql/ has the statements that are longer than a line or two.
//
// Every transaction locks the order mode first (shared), then vouchers by id, orders by voucher and user, and the
// outbox: buyers cannot deadlock. Overdue orders come before their voucher, whoever moves them: see moveOrders. Under
// READ COMMITTED a read sees what was committed while the transaction waited, and no gap is locked.
package repository
