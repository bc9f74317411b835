// Package sqldb opens the service's database and runs what package repository asks of it. It knows no voucher.
//
// database.go opens MySQL, MariaDB or SQLite, and has what differs in their SQL. connection.go sets connections up and
// drops useless ones. transaction.go runs queries and transactions, again where that is safe, and judges drivers'
// errors. migrate.go updates the schema, and claims a name for one process.
package sqldb
