package repository

import (
	"embed"
	"strings"

	"seckill/repository/sqldb"
)

// statements are files, see their comments.
//
//go:embed sql/*.sql
var statements embed.FS

// orderMode is the order mode as a value within a SELECT. It says that it locks: under
// READ COMMITTED a subselect locks nothing by itself, not even in an UPDATE.
func orderMode(d sqldb.Dialect) string {
	return "(SELECT mode FROM order_mode WHERE id = 1" + d.Share + ")"
}

// sqlOf makes a statement of the file of a name: without its comments, and with
// the dialect's clock in place of NOW(6). It panics when the program was built without
// that file.
func sqlOf(d sqldb.Dialect, name string) string {
	file, err := statements.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	var lines []string
	for line := range strings.Lines(string(file)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, " "), "NOW(6)", d.Now)
}
