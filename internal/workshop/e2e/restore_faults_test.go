//go:build faults

//part:databases

package e2e_test

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// The database is lost and restored from a backup, while Redis knows what was sold since. Those orders are lost with the
// database. Everything else holds: the hot copy is rebuilt from what the database has, and exactly the stock is sold. Each
// rebuild since the backup makes the epochs in the database lower than those in Redis. Without one they are the same and the
// copy looks healthy. Nobody has to help in either case, and no buyer from before has to come.
func TestADatabaseIsRestoredBesideANewerRedis(t *testing.T) {
	t.Parallel()
	const stock, before, since = 30, 8, 8
	for name, tt := range map[string]struct {
		running  bool
		rebuilds int
	}{
		"lower epochs, under running instances":      {true, 5},
		"lower epochs, before the instances start":   {false, 5},
		"the same epoch, under running instances":    {true, 0},
		"the same epoch, before the instances start": {false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, s := asyncOnOwnDatabase(t)
			a := launch(t, s)
			voucher := a.onSale(t, stock)
			kept := a.stores(t, voucher.ID, 0, before)
			own.Stop()
			own.KeepData()
			own.Start()
			a.accepted(t, voucher.ID, a.user(before)) // it sells again
			lost := a.stores(t, voucher.ID, 100, since)
			// A message that is not acknowledged yet would bring its order back.
			check.Patiently(t, "the queue is empty", func() bool { return a.Audit(t, voucher.ID).Queue.Pending == 0 })
			for range tt.rebuilds {
				a.rebuild(t, voucher.ID)
				a.opens(t, voucher.ID)
			}

			if !tt.running {
				a.kill()
			}
			own.Kill()
			own.RestoreData()
			restored := time.Now()
			own.Start()
			if !tt.running {
				a.start(t)
				a.awaitReady(t)
			}
			a.accepted(t, voucher.ID, a.user(500)) // it sells again
			t.Logf("it sold again %.1f s after the database had begun to start", time.Since(restored).Seconds())
			a.quiet(t, voucher.ID)
			t.Logf("it was in balance %.1f s after the database had begun to start", time.Since(restored).Seconds())
			orders := a.kept(t, voucher.ID, kept)
			gone := 0
			for id := range lost {
				if _, there := orders[id]; !there {
					gone++
				}
			}
			t.Logf("of %d orders since the backup %d are gone", since, gone)
			check.Equal(t, "orders since the backup that are gone", gone, since)
			a.sellsOn(t, voucher.ID, 1000)
		})
	}
}

// A backup that is taken as deployments/backup.md says, while buyers buy, has every order that was answered before it began
// and none twice; and the commands that restore it are those that stand there.
func TestABackupIsTakenDuringASale(t *testing.T) {
	t.Parallel()
	const stock, before, since = 300, 8, 8
	own, s := asyncOnOwnDatabase(t)
	a := launch(t, s)
	voucher := a.onSale(t, stock)
	backup := newBackup(t, own)
	kept := a.stores(t, voucher.ID, 0, before)

	over, bought := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		defer func() { bought <- n }()
		for ; n < stock/2; n++ {
			select {
			case <-over:
				return
			default:
				a.accepted(t, voucher.ID, a.user(1000+n))
			}
		}
	}()
	backup.follow(t, "Taking one")
	close(over)
	t.Logf("%d orders were made while the backup was taken", <-bought)
	lost := a.stores(t, voucher.ID, 100, since)

	own.Kill()
	backup.follow(t, "Restoring it")
	own.Start()
	a.accepted(t, voucher.ID, a.user(500)) // it sells again
	check.Patiently(t, "the repair leaves nothing to do", func() bool {
		said, err := runs(t, s, "audit", "--repair", "--voucher", voucher.ID)
		t.Log(said)
		return err == nil
	})
	orders := a.kept(t, voucher.ID, kept)
	for id := range lost {
		if _, there := orders[id]; there {
			t.Errorf("order %s was made after the backup, and is there", id)
		}
	}
	a.sellsOn(t, voucher.ID, 5000)
}

// backup is a server's, by the commands of deployments/backup.md.
type backup struct{ environ []string }

// newBackup tells mariadb-backup, in the file where an operator would, which server is meant.
func newBackup(t *testing.T, own *testserver.Server) backup {
	t.Helper()
	db := check.Value(sql.Open("mysql", own.AdminDSN("")))(t)
	defer db.Close()
	var data, socket string
	check.Must(t, db.QueryRowContext(t.Context(), "SELECT @@datadir, @@socket").Scan(&data, &socket))
	home := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(home, ".my.cnf"),
		fmt.Appendf(nil, "[mariadb-backup]\nuser = root\nsocket = %s\ndatadir = %s\ninnodb_use_native_aio = OFF\n", socket, data), 0o600))
	return backup{append(os.Environ(), "HOME="+home, "DATA="+filepath.Clean(data), "BACKUP="+filepath.Join(home, "backup"))}
}

// follow runs the first commands of a chapter.
func (b backup) follow(t *testing.T, chapter string) {
	t.Helper()
	page := check.Value(os.ReadFile("../../../deployments/backup.md"))(t)
	found := regexp.MustCompile(`(?s)\n## ` + chapter + `\n.*?\n` + "```sh\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatalf("backup.md does not say how: %s", chapter)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", string(found[1]))
	cmd.Env = b.environ
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", found[1], err, out)
	}
}
