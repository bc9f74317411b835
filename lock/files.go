package lock

import "embed"

//go:embed lua/*.lua sql/*.sql
var files embed.FS

// file reads a script or a statement.
func file(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // a file of this package
	}
	return string(text)
}
