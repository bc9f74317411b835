package embedded

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// The permissions of a data directory and of its files: only the owner has any.
const (
	private     fs.FileMode = 0o700
	privateFile fs.FileMode = 0o600
)

// tighten takes the rights of other users from a data directory and from everything
// that this program keeps there, which an older version or a copy may have left
// readable. It tells log what it changed, and what it could not change: a volume of
// an orchestrator can belong to another user, and is served from all the same.
func tighten(dir string, log *slog.Logger) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // a link has all rights, whatever those of its directory are
	}
	entries, err := os.ReadDir(dir)
	shared := false
	changed := 0
	for _, entry := range entries {
		if !ours(entry.Name()) {
			shared = true
			continue
		}
		n, failed := tightenTree(filepath.Join(dir, entry.Name()))
		changed += n
		err = errors.Join(err, failed)
	}
	// A directory in which other programs have files too, as /tmp, is not ours to close.
	if !shared {
		closed, failed := tightenOne(dir, private)
		err = errors.Join(err, failed)
		if closed {
			changed++
		}
	}
	if changed > 0 && len(entries) > 0 { // in an empty directory there was nothing to read
		log.Warn("other users of this machine could read the data directory; from now on they cannot: "+
			"if one of them must not know the secrets in it, remove the file "+secretFile+" and start again "+
			"(a "+codeKeyFile+" that is removed takes the codes of paid orders with it)",
			slog.String("directory", dir), slog.Int("changed", changed))
	}
	if err != nil {
		log.Warn("the data directory may be readable for other users of this machine",
			slog.String("directory", dir), slog.Any("error", err))
	}
	if shared {
		log.Warn("the data directory holds files of others, and is left open to them: choose one of its own with SECKILL_DATA_DIR",
			slog.String("directory", dir))
	}
}

// ours reports whether this program makes files of that name in a data directory.
func ours(name string) bool {
	return name == queueDir || name == claimFile || strings.HasPrefix(name, databaseFile) || strings.HasPrefix(name, ledgerFile) ||
		strings.HasPrefix(name, secretFile) || strings.HasPrefix(name, codeKeyFile)
}

// tightenTree takes the rights of others from a file, or from a directory and all it
// holds, and counts what it changed. A link is not followed.
func tightenTree(path string) (changed int, err error) {
	walked := filepath.WalkDir(path, func(path string, entry fs.DirEntry, failed error) error {
		if failed != nil {
			err = errors.Join(err, failed)
			return nil
		}
		mode := privateFile
		switch {
		case entry.IsDir():
			mode = private
		case !entry.Type().IsRegular():
			return nil
		}
		did, failed := tightenOne(path, mode)
		err = errors.Join(err, failed)
		if did {
			changed++
		}
		return nil
	})
	return changed, errors.Join(err, walked)
}

// tightenOne takes the rights of others from one file. It reports false for one that
// gave them none, and for one that is gone: SQLite removes its journals.
func tightenOne(path string, mode fs.FileMode) (changed bool, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || info.Mode().Perm()&^private == 0 {
		return false, err
	}
	err = os.Chmod(path, mode)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
