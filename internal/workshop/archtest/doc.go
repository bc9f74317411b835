// Package archtest holds all files to the repository's rules; who may import whom is in .golangci.yml. It is all tests.
package archtest
