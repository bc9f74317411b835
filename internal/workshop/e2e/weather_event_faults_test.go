//go:build faults

//part:weather

package e2e_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// event is something that happens to a deployment and is put right after a while.
type event struct {
	name, server string
	aimed        bool // it meets the first voucher alone: the other may not notice
	loses        bool // Redis forgets what it had acknowledged
	strike       strike
}

// strike makes an event happen and returns its mend. It knows how long: a Redis that shall be silent must know.
type strike func(w *weather, lasts time.Duration) (mend func())

// hangUp ends the service's connections to the database.
const hangUp = "KILL USER " + weatherUser

const (
	inMariaDB = "MariaDB"
	inRedis   = "Redis"
	inNATS    = "NATS"
)

func events() []event { return slices.Concat(databaseEvents(), redisEvents(), natsEvents()) }

// redisAccount makes the account of the service, which Redis forgets when it ends.
const redisAccount = "ACL SETUSER " + weatherUser + " on >" + weatherPassword + " ~* &* +@all"

// killEvents are kills with SIGKILL. What is killed comes back as an orchestrator brings it back.
func killEvents() []event {
	server := func(of func(w *weather) *testserver.Server, mend func(w *weather)) strike {
		return func(w *weather, _ time.Duration) func() {
			of(w).Kill()
			return func() {
				of(w).Start()
				mend(w)
			}
		}
	}
	nothing := func(*weather) {}
	all := []event{
		{
			name: "MariaDB killed", server: inMariaDB,
			strike: server(func(w *weather) *testserver.Server { return w.own.database }, nothing),
		},
		{
			name: "NATS killed", server: inNATS,
			strike: server(func(w *weather) *testserver.Server { return w.own.nats }, nothing),
		},
		{name: "Redis killed", server: inRedis, loses: true, strike: server(
			func(w *weather) *testserver.Server { return w.own.redis },
			func(w *weather) { w.redis(w.primary, redisAccount) })},
	}
	for n, name := range []string{"API 1", "API 2", "worker 1", "worker 2"} {
		all = append(all, event{name: name + " killed", server: name, strike: func(w *weather, _ time.Duration) func() {
			p := w.processes[n]
			p.kill()
			return func() { p.revive(w.t) } // and again, if a server that it needs is dead too: see weather.revive
		}})
	}
	return all
}

func databaseEvents() []event {
	const account = weatherUser + "@'127.0.0.1'"
	// A privilege, and what an account may at all, is looked at when a connection is made.
	revoked := func(what string) strike {
		return statements("REVOKE "+what+" ON seckill.* FROM "+account+"; "+hangUp,
			"GRANT "+what+" ON seckill.* TO "+account)
	}
	altered := func(how, back string) strike {
		return statements("ALTER USER "+account+" "+how+"; "+hangUp, "ALTER USER "+account+" "+back)
	}
	renamed := func(table string) strike {
		return statements("RENAME TABLE "+table+" TO away", "RENAME TABLE away TO "+table)
	}
	return []event{
		{name: "table orders away", server: inMariaDB, strike: renamed("orders")},
		{name: "table vouchers away", server: inMariaDB, strike: renamed("vouchers")},
		{name: "table releases away", server: inMariaDB, strike: renamed("releases")},
		{name: "table waitlist away", server: inMariaDB, strike: renamed("waitlist")},
		{name: "table draw_entries away", server: inMariaDB, strike: renamed("draw_entries")},
		{name: "tables locked", server: inMariaDB, strike: statements("FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES")},
		{name: "trigger", server: inMariaDB, aimed: true, strike: refusingOne("SQLSTATE '45000'")},
		{
			name: "trigger with a raw number", server: inMariaDB, aimed: true,
			strike: refusingOne("SQLSTATE 'HY000' SET MYSQL_ERRNO = 1026"),
		},
		{name: "row of one voucher locked", server: inMariaDB, aimed: true, strike: rowLocked},
		{name: "row of one voucher away", server: inMariaDB, aimed: true, strike: rowAway},
		{name: "writing forbidden", server: inMariaDB, strike: revoked("INSERT, UPDATE")},
		{name: "schema forbidden", server: inMariaDB, strike: revoked("ALL")},
		{name: "connections used up", server: inMariaDB, strike: usedUp},
		{
			name: "connections of the account used up", server: inMariaDB,
			strike: altered("WITH MAX_USER_CONNECTIONS 1", "WITH MAX_USER_CONNECTIONS 0"),
		},
		{name: "connections killed", server: inMariaDB, strike: hungUp},
		{
			name: "database password changed", server: inMariaDB,
			strike: altered("IDENTIFIED BY 'other'", "IDENTIFIED BY '"+weatherPassword+"'"),
		},
		{
			name: "database password expired", server: inMariaDB,
			strike: altered("PASSWORD EXPIRE", "IDENTIFIED BY '"+weatherPassword+"'"),
		},
		{name: "account locked", server: inMariaDB, strike: altered("ACCOUNT LOCK", "ACCOUNT UNLOCK")},
		{
			name: "read-only", server: inMariaDB,
			strike: statements("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
		},
		{
			name: "COMMIT refused", server: inMariaDB,
			strike: withoutQuorum(func(statement string) bool { return statement == "COMMIT" }),
		},
		{
			name: "COMMIT and ROLLBACK refused", server: inMariaDB,
			strike: withoutQuorum(func(statement string) bool {
				return statement == "COMMIT" ||
					statement == "ROLLBACK"
			}),
		},
		{name: "quorum lost", server: inMariaDB, strike: withoutQuorum(func(string) bool { return true })},
	}
}

func statements(strike, mend string) strike {
	return func(w *weather, _ time.Duration) func() {
		w.sql(strings.Split(strike, "; ")...)
		return func() { w.sql(mend) }
	}
}

func refusingOne(signal string) strike {
	return func(w *weather, _ time.Duration) func() {
		w.sql(refusing("refusing", w.sales[0].voucher, "SIGNAL "+signal))
		return func() { w.sql("DROP TRIGGER refusing") }
	}
}

// rowLocked is somebody's open transaction that has the first voucher's row.
func rowLocked(w *weather, _ time.Duration) func() {
	other, err := w.admin.BeginTx(w.t.Context(), nil)
	w.must("begin", err)
	_, err = other.ExecContext(w.t.Context(), "UPDATE vouchers SET title = title WHERE id = ?", w.sales[0].voucher)
	w.must("lock the voucher", err)
	return func() { w.must("give the voucher back", other.Rollback()) }
}

// rowAway hides the first voucher's row, as a dump does that is loaded in place.
func rowAway(w *weather, _ time.Duration) func() {
	back, err := hideVoucher(w.t.Context(), w.admin, w.sales[0].voucher)
	w.must("hide the voucher", err)
	return func() { w.must("put the voucher back", back()) }
}

// hideVoucher takes a voucher's row out of its table, and returns what puts it back as it was.
func hideVoucher(ctx context.Context, db *sql.DB, id string) (back func() error, err error) {
	// The table that keeps it is made first, because that commits.
	if _, err := db.ExecContext(ctx, "CREATE TABLE away AS SELECT * FROM vouchers WHERE FALSE"); err != nil {
		return nil, err
	}
	var columns string // but for those that the database generates, and that nobody may write
	err = db.QueryRowContext(ctx, "SELECT GROUP_CONCAT(column_name) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'vouchers' AND COALESCE(generation_expression, '') = ''").Scan(&columns)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO away SELECT * FROM vouchers WHERE id = ? FOR UPDATE", id)
	if err == nil {
		_, err = tx.ExecContext(ctx, "DELETE FROM vouchers WHERE id = ?", id)
	}
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return func() error {
		_, err := db.ExecContext(ctx, "INSERT INTO vouchers ("+columns+") SELECT "+columns+" FROM away")
		if err == nil {
			_, err = db.ExecContext(ctx, "DROP TABLE away")
		}
		return err
	}, tx.Commit()
}

// usedUp lets somebody else have every connection of the database.
func usedUp(w *weather, _ time.Duration) func() {
	const least = 10 // a MariaDB does not go below
	guests := behind(w.t, settings{"SECKILL_DATABASE_DSN": w.own.database.DSN("")})
	guests.SetMaxIdleConns(least)
	var sitting []*sql.Conn
	for range least {
		conn, err := guests.Conn(w.t.Context())
		w.must("take a connection", err)
		sitting = append(sitting, conn)
	}
	w.sql("SET GLOBAL max_connections = "+strconv.Itoa(least), hangUp)
	return func() {
		w.sql("SET GLOBAL max_connections = 400")
		for _, conn := range sitting {
			w.must("give a connection back", conn.Close())
		}
		w.must("leave", guests.Close())
	}
}

func hungUp(w *weather, _ time.Duration) func() {
	return meanwhile(1, func(int, int) {
		_, err := w.admin.ExecContext(w.t.Context(), hangUp)
		check.That(w.t, err == nil, "hang up: %v", err)
		<-time.After(between)
	})
}

// withoutQuorum refuses statements like a Galera node without the others: open transactions stay open.
func withoutQuorum(refused func(statement string) bool) strike {
	const noQuorum, query = 1047, 0x03
	payload := binary.LittleEndian.AppendUint16([]byte{0xff}, noQuorum)
	payload = append(payload, "#08S01WSREP has not yet prepared node for application use"...)
	answer := append([]byte{byte(len(payload)), 0, 0, 1}, payload...)
	return func(w *weather, _ time.Duration) func() {
		w.wires[inMariaDB].answers(func(data []byte) []byte {
			// A packet is its length in 3 bytes, a 0, what is asked for, and the statement.
			whole := len(data) > 5 && int(binary.LittleEndian.Uint32(data)) == len(data)-4
			if whole && data[4] == query && refused(string(data[5:])) {
				return answer
			}
			return nil
		})
		return func() { w.wires[inMariaDB].answers(nil) }
	}
}

func redisEvents() []event {
	account := func(rules, back string) strike {
		return commands("ACL SETUSER "+weatherUser+" "+rules+"; CLIENT KILL USER "+weatherUser,
			"ACL SETUSER "+weatherUser+" "+back)
	}
	return []event{
		{
			name: "Redis out of memory", server: inRedis,
			strike: commands("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 512mb"),
		},
		{name: "Redis disk full", server: inRedis, strike: unsaved},
		{
			name: "Redis password changed", server: inRedis,
			strike: account("resetpass >other", "resetpass >"+weatherPassword),
		},
		{name: "Redis writing forbidden", server: inRedis, strike: account("-@write", "+@all")},
		{name: "Redis silent", server: inRedis, strike: func(w *weather, lasts time.Duration) func() {
			w.redis(w.primary, "CLIENT PAUSE "+strconv.FormatInt(lasts.Milliseconds(), 10)+" ALL")
			return func() { w.redis(w.primary, "PING") } // which is answered once the pause is over
		}},
		{name: "Redis cut off", server: inRedis, strike: cutOff(inRedis)},
		{name: "primary demoted and promoted", server: inRedis, strike: demoted},
		{name: "primary promoted with old data", server: inRedis, loses: true, strike: withOldData},
	}
}

func commands(strike, mend string) strike {
	return func(w *weather, _ time.Duration) func() {
		for command := range strings.SplitSeq(strike, "; ") {
			w.redis(w.primary, command)
		}
		return func() { w.redis(w.primary, mend) }
	}
}

// unsaved makes every snapshot fail, so that Redis refuses to write: where its file is to be, there is a directory.
func unsaved(w *weather, _ time.Duration) func() {
	ctx := w.t.Context()
	setting, err := w.primary.ConfigGet(ctx, "dir").Result()
	w.must("ask for the directory", err)
	file := filepath.Join(setting["dir"], "dump.rdb")
	_ = os.Remove(file) // of an earlier snapshot
	w.must("be in the way", os.Mkdir(file, 0o700))
	saves := func(how string) {
		w.until("a snapshot is "+how, func() bool {
			_ = w.primary.BgSave(ctx).Err() // an error: one is being written
			return strings.Contains(w.redis(w.primary, "INFO persistence"), "rdb_last_bgsave_status:"+how)
		})
	}
	w.must("set", w.primary.ConfigSet(ctx, "save", "3600 1").Err())
	saves("err")
	return func() {
		w.must("be out of the way", os.Remove(file))
		saves("ok")
		w.must("set", w.primary.ConfigSet(ctx, "save", "").Err())
	}
}

// demoted has replica and primary take over in turn, each after it has everything: nothing is lost.
func demoted(w *weather, _ time.Duration) func() {
	w.handOver(w.primary, w.replica)
	return func() { w.handOver(w.replica, w.primary) }
}

// withOldData makes the primary take over from a replica that has not heard of anything for a while. Its run_id stays.
func withOldData(w *weather, _ time.Duration) func() {
	w.redis(w.replica, "REPLICAOF NO ONE")
	return func() {
		w.follow(w.primary, w.replica)
		w.redis(w.primary, "REPLICAOF NO ONE")
		w.follow(w.replica, w.primary)
	}
}

// follow makes one Redis the replica of another, with all that is there.
func (w *weather) follow(replica, primary *redis.Client) {
	host, port, _ := net.SplitHostPort(primary.Options().Addr)
	w.redis(replica, "REPLICAOF "+host+" "+port)
	w.until("the replica has everything", func() bool {
		return strings.Contains(w.redis(replica, "INFO replication"),
			"master_link_status:up")
	})
}

// handOver is what a sentinel does when everybody is well.
func (w *weather) handOver(primary, replica *redis.Client) {
	host, port, _ := net.SplitHostPort(replica.Options().Addr)
	w.until("the replica is ready to take over", func() bool {
		return primary.Do(w.t.Context(), "FAILOVER", "TO", host, port, "TIMEOUT", "5000").Err() == nil
	})
	w.until("the replica has taken over", func() bool {
		return strings.Contains(w.redis(replica, "INFO replication"), "role:master") &&
			strings.Contains(w.redis(primary, "INFO replication"), "role:slave")
	})
}

func natsEvents() []event {
	return []event{
		{name: "queue full", server: inNATS, strike: queueFull},
		{name: "NATS password changed", server: inNATS, strike: func(w *weather, _ time.Duration) func() {
			w.own.nats.ReloadNATS(natsAccounts("other", ""))
			w.until("NATS refuses the service", func() bool { return !w.login() })
			return w.natsAsItWas
		}},
		{name: "NATS publishing forbidden", server: inNATS, strike: func(w *weather, _ time.Duration) func() {
			w.own.nats.ReloadNATS(natsAccounts(weatherPassword, `, permissions: {publish: {deny: "seckill.>"}}`))
			return w.natsAsItWas
		}},
		{name: "NATS cut off", server: inNATS, strike: cutOff(inNATS)},
	}
}

// natsAccounts are the service, with rules that may be wrong, and the test.
func natsAccounts(password, rules string) string {
	return "authorization: {users: [{user: " + weatherUser + ", password: " + password + rules +
		"}, {user: admin, password: admin}]}"
}

func (w *weather) natsAsItWas() {
	w.own.nats.ReloadNATS(natsAccounts(weatherPassword, ""))
	w.until("NATS lets the service in", w.login)
}

func (w *weather) login() bool {
	conn, err := nats.Connect(w.own.nats.URL(), nats.UserInfo(weatherUser, weatherPassword))
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// queueFull leaves the stream of orders no room for another message.
func queueFull(w *weather, _ time.Duration) func() {
	resize := func(bytes int64) {
		info, err := w.queue.stream.Info(w.t.Context())
		w.must("look at the queue", err)
		info.Config.MaxBytes = bytes
		_, err = w.queue.js.UpdateStream(w.t.Context(), info.Config)
		w.must("resize the queue", err)
	}
	resize(1)
	return func() { resize(-1) }
}

// cutOff ends all connections to a server, and what new ones send does not arrive.
func cutOff(server string) strike {
	return func(w *weather, _ time.Duration) func() {
		release := w.wires[server].hold(up)
		w.wires[server].Sever()
		return func() { w.wires[server].Sever(); release() }
	}
}
