// Package e2e holds the tests of the whole program over real HTTP, on real MariaDB and Redis servers: the contract,
// sales under load, and faults.
package e2e
