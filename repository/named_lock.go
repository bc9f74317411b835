package repository

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
)

// longestLockName is what MySQL allows, in characters.
const longestLockName = 64

// lockName names a lock of a schema: named locks are the server's, and other
// schemas on it are none of ours.
func lockName(schema, name string) string {
	full := "seckill." + schema + "." + name
	if len(full) <= longestLockName {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	return "seckill." + hex.EncodeToString(sum[:16]) + "." + name[:min(len(name), 16)]
}

// getLock takes a named lock for a connection if it is free.
func getLock(ctx context.Context, conn *sql.Conn, name string) (bool, error) {
	var got sql.NullBool // NULL: an error, for example out of memory
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", name).Scan(&got); err != nil {
		return false, fmt.Errorf("take the lock %s: %w", name, err)
	}
	return got.Bool, nil
}
