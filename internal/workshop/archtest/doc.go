// Package archtest holds the repository to its own rules: who may import whom, and what no file may contain.
// It has no code but its tests, which read the sources of the whole module.
package archtest
