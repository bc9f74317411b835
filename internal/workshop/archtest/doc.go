// Package archtest holds the repository to its own rules of what no file may contain; who may import whom is in
// .golangci.yml. It has no code but its tests, which read the sources of the whole module.
package archtest
