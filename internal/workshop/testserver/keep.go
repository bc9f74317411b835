package testserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// KeepLog keeps what a program of a failed test said in a file under bin/logs, and tells the test only the file's name:
// the output of a test is read by people.
func KeepLog(t testing.TB, program, text string) {
	t.Helper()
	// A test's name has slashes and spaces.
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\ :`, r) {
			return '-'
		}
		return r
	}, t.Name()+"-"+program)
	path, err := logFile(name)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Logf("the log of %s could not be kept: %v\n%s", program, err, text)
		return
	}
	t.Logf("the log of %s is %s", program, path)
}

// logFile is the path of a log under bin/, whose directory is there afterwards.
func logFile(name string) (string, error) {
	dir := filepath.Join(moduleRoot(), "bin", "logs")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make the directory of logs: %w", err)
	}
	return filepath.Join(dir, name+".log"), nil
}

// redisNoise is what go-redis says of connections that tests break on purpose. It goes into a file for each test binary,
// because a line names no test.
type redisNoise struct {
	once sync.Once
	file *os.File
}

// Printf implements the logger of go-redis.
func (n *redisNoise) Printf(_ context.Context, format string, args ...any) {
	n.once.Do(func() {
		path, err := logFile(filepath.Base(os.Args[0]) + "-redis")
		if err == nil {
			n.file, err = os.Create(path)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "testserver: what go-redis says is lost: %v\n", err)
		}
	})
	if n.file != nil {
		fmt.Fprintf(n.file, format+"\n", args...)
	}
}
