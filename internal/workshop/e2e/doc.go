// Package e2e tests the whole program over real HTTP, on real servers: the contract, sales under load, and faults.
package e2e
