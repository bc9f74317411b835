// Package repository keeps vouchers, orders and accounts in the database, the
// only truth of the service. MySQL 8, MariaDB 10.6 and newer, and SQLite
// (embedded) run the same code; where their SQL differs, dialect says how.
// Package hotcopy below it is the Redis half; neither imports the other.
//
// Every transaction locks the order mode first (shared), then vouchers by id,
// then orders by voucher and user, then the outbox: with one order of locks
// there are no deadlocks between buyers. Orders whose time has passed come before
// their voucher, whoever moves them: see moveOrders. Its isolation is READ
// COMMITTED: a read sees what was committed while the transaction waited, and no
// gap is locked.
package repository
