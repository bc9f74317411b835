package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"time"

	"seckill/internal/poll"
)

// startPoll is between two looks at a server that starts.
const startPoll = 20 * time.Millisecond

// ownDatabase starts a MariaDB that goes with the run, reached by a socket alone. It returns
// "" where none is installed.
func (e *environment) ownDatabase(ctx context.Context) (dsn string, err error) {
	install, server := installed("mariadb-install-db"), installed("mariadbd")
	if install == "" || server == "" {
		return "", nil
	}
	me, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("start MariaDB: %w", err)
	}
	dir, err := os.MkdirTemp("", "lab-db-")
	if err != nil {
		return "", fmt.Errorf("start MariaDB: %w", err)
	}
	e.undo.add(func(context.Context) error { return os.RemoveAll(dir) })
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "s")
	made := exec.CommandContext(ctx, install, "--no-defaults", "--datadir="+data, "--user="+me.Username, //nolint:gosec // a program of the system
		"--auth-root-authentication-method=normal", "--skip-test-db")
	if said, err := made.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make a MariaDB: %w: %s", err, said)
	}
	run := exec.Command(server, "--no-defaults", "--datadir="+data, "--socket="+socket, "--user="+me.Username, "--skip-networking", //nolint:gosec,noctx // ended by undo
		"--skip-log-bin", "--innodb-flush-log-at-trx-commit=2", "--pid-file="+filepath.Join(dir, "pid"))
	ended, err := e.undo.start(run)
	if err != nil {
		return "", err
	}
	dsn = "root@unix(" + socket + ")/"
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return "", fmt.Errorf("reach MariaDB: %w", err)
	}
	defer db.Close()
	return dsn, ready(ctx, "MariaDB", ended, db.PingContext)
}

// installed finds a program, also where only root looks.
func installed(name string) string {
	for _, place := range []string{name, filepath.Join("/usr/sbin", name)} {
		if path, err := exec.LookPath(place); err == nil {
			return path
		}
	}
	return ""
}

// start runs a server until it is undone. The channel is closed when it has ended.
func (c *cleanup) start(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait()
	}()
	c.add(func(context.Context) error {
		_ = cmd.Process.Kill() // its data go too
		<-gone
		return nil
	})
	return gone, nil
}

// errServerEnded: another program may have taken its port meanwhile.
var errServerEnded = errors.New("the server has ended")

// ready waits until a server that was started answers.
func ready(ctx context.Context, what string, ended <-chan struct{}, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, rowBudget)
	defer cancel()
	alive, dead := context.WithCancelCause(ctx)
	defer dead(nil)
	go func() {
		select {
		case <-ended:
			dead(errServerEnded)
		case <-alive.Done():
		}
	}()
	var last error
	if poll.Until(alive, startPoll, func() (bool, error) { last = ask(alive); return last == nil, nil }) != nil {
		return fmt.Errorf("wait for %s: %w", what, errors.Join(context.Cause(alive), last))
	}
	return nil
}
