package repository

import (
	"embed"
	"regexp"
	"strings"

	"seckill/internal/lane"
	"seckill/repository/sqldb"
)

// statements are files, see their comments.
//
//go:embed sql/*.sql
var statements embed.FS

// texts are the statements by name: without their comments, in one line.
var texts = readTexts() //nolint:gochecknoglobals // constant

func readTexts() map[string]string {
	texts := map[string]string{}
	files, err := statements.ReadDir("sql")
	for _, file := range files {
		var text []byte
		if text, err = statements.ReadFile("sql/" + file.Name()); err != nil {
			break
		}
		var lines []string
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
				lines = append(lines, line)
			}
		}
		texts[strings.TrimSuffix(file.Name(), ".sql")] = strings.Join(lines, " ")
	}
	if err != nil {
		panic(err) // the program was built without them
	}
	return texts
}

// parted does something with the rows, or the words of a question, in one statement where the server takes it, and in several otherwise.
// Nothing of one that is too large is sent: a transaction goes on.
func parted[T any](items []T, do func(some []T) error) error {
	return lane.Halve(items, sqldb.TooLarge, do)
}

// orderMode is the order mode as a value within a SELECT. It says that it locks: under
// READ COMMITTED a subselect locks nothing by itself, not even in an UPDATE.
func orderMode(d sqldb.Dialect) string {
	return "(SELECT mode FROM order_mode WHERE id = 1" + d.Share + ")"
}

// forced is how MySQL says what sqldb.Dialect.Through says.
var forced = regexp.MustCompile(`FORCE INDEX \((\w+)\)`)

// sqlOf is the statement of a name, with the dialect's clock in place of NOW(6), and its way to name an index. It panics when there is no such file.
func sqlOf(d sqldb.Dialect, name string) string {
	text, ok := texts[name]
	if !ok {
		panic("there is no sql/" + name + ".sql")
	}
	if d.Name == sqldb.SQLite {
		text = forced.ReplaceAllString(text, "INDEXED BY $1")
	}
	return strings.ReplaceAll(text, "NOW(6)", d.Now)
}
