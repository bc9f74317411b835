// Package sqldb opens the service's database and runs what package repository asks of it. It knows no voucher and no
// order.
//
// database.go opens MySQL, MariaDB or SQLite, and says what differs in their SQL. connection.go sets each connection up
// and drops one that is of no use, or that leads to a server which takes no writes any more. transaction.go runs
// questions and transactions, again where that is safe, and errors.go says what an error of a driver means for them.
// migrate.go brings the schema up to date, and exclusive.go claims a name for one process.
package sqldb
