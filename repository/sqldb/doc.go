// Package sqldb opens the service's database and runs what package repository asks of it. It knows no voucher.
//
// database.go opens MySQL, MariaDB or SQLite, and has what differs in their SQL. connection.go sets each connection up,
// and drops a useless one or one to a server that takes no writes any more. transaction.go runs queries and
// transactions, again where that is safe, and judges drivers' errors. migrate.go updates the schema, exclusive.go
// claims a name for one process.
package sqldb
