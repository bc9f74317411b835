// Package testserver runs real MariaDB, Redis and NATS processes for tests: on free ports of 127.0.0.1, each
// with directories of its own, configured by the very files in deployments/ that production uses, and gone
// when the test is over, also when it was killed.
//
// A package that uses it calls Main from its TestMain. Tests that only need a database or a Redis take
// Schema and SharedRedis, which share one process per test binary; tests that kill, stop or pause a server
// take MariaDB, Redis and NATS, which start one of their own.
//
// A missing server program fails the test and names the package to install. Nothing is ever skipped.
package testserver
