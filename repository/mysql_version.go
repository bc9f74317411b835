package repository

import (
	"context"
	"fmt"
	"strings"
)

// checkVersion refuses servers that would ignore what the schema relies on:
// MySQL before 8.0.16 parses CHECK constraints and does not enforce them.
func (d *Database) checkVersion(ctx context.Context) error {
	if d.dialect.name != dialectMySQL {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, operationBudget)
	defer cancel()
	var version string
	if err := d.sql.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return d.fail("ask for the database's version", err)
	}
	if !supported(version) {
		return fmt.Errorf("the database is %s; MySQL 8.0.16 or MariaDB 10.6 is the oldest that works", version)
	}
	return nil
}

func supported(version string) bool {
	oldest := [3]int{8, 0, 16}
	if strings.Contains(version, "MariaDB") {
		oldest = [3]int{10, 6, 0}
		version = strings.TrimPrefix(version, "5.5.5-") // how old servers greeted old clients
	}
	var have [3]int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &have[0], &have[1], &have[2]); n < 2 {
		return true // a fork with numbers of its own: let it try
	}
	for i := range have {
		if have[i] != oldest[i] {
			return have[i] > oldest[i]
		}
	}
	return true
}
