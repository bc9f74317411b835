//go:build faults

//part:redis
package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/redis/go-redis/v9"

	"seckill/internal/api"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// With 100,000 buyers a sale goes on after each loss, and says 503 until then, never SOLD_OUT. (Within 3 s, says the
// contract: the time is logged.)
func TestHotCopyOfManyBuyersIsRebuilt(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnRedis(t)
	a := start(t, s)
	const sold, left = 100_000, 50
	voucher := a.onSale(t, sold+left)
	seed(t, s, voucher.ID, sold)
	a.rebuild(t, voucher.ID)
	a.quiet(t, voucher.ID)
	promised := map[string]string{}
	for _, how := range []string{"FLUSHALL", "an old copy", "empty"} {
		own.KeepData()
		order := a.accepted(t, voucher.ID, a.user(len(promised))) // the old copy does not know the order
		promised[order.ID] = order.UserID
		a.becomes(t, order, model.OrderUnpaid)
		losses(t, own)[how]()
		lost := time.Now()
		next := a.accepted(t, voucher.ID, a.user(len(promised)))
		t.Logf("%s: it sells again after %v", how, time.Since(lost))
		promised[next.ID] = next.UserID
		for _, twice := range []string{order.UserID, "seeded1", fmt.Sprintf("seeded%d", sold)} {
			got := remote.Insist(t, twice, func(int) (api.Answer, error) { return a.Place(t, voucher.ID, twice) })
			check.That(t, got.Code() == model.CodeAlreadyOrdered,
				"%s: %s has an order, and hears %d %s", how, twice, got.Status, got.Body)
		}
	}
	a.quiet(t, voucher.ID)
	for n := 0; len(promised) < left; n++ {
		promised[a.accepted(t, voucher.ID, a.user(1000+n)).ID] = a.user(1000 + n)
	}
	audit := a.quiet(t, voucher.ID)
	if audit.Database.LiveOrders != sold+left || audit.Redis.Buyers != sold+left {
		t.Errorf("%+v %+v", audit.Database, *audit.Redis)
	}
}

// seed writes unpaid orders of the users seeded1, seeded2, … as if they had been bought.
func seed(t *testing.T, s settings, voucherID string, orders int) {
	t.Helper()
	db := behind(t, s)
	tx := check.Value(db.BeginTx(t.Context(), &sql.TxOptions{}))(t)
	for _, statement := range []string{
		fmt.Sprintf("UPDATE vouchers SET remaining = remaining - %d, version = version + 1 WHERE id = ?", orders),
		`INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, expires_at)
		 SELECT CONCAT(LPAD(seq, 26, '0'), '.', v.id), v.id, CONCAT('seeded', seq), 'unpaid', v.price, v.currency,
		        UTC_TIMESTAMP(6) - INTERVAL (1000000 - seq) * 100 MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 1 HOUR
		 FROM vouchers v JOIN ` + testserver.Numbers(1, orders) + ` WHERE v.id = ?`,
	} {
		check.Must(t, check.ErrorOf(tx.ExecContext(t.Context(), statement, voucherID)))
	}
	check.Must(t, tx.Commit())
	// As after a sale that took its time: the server knows its tables.
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), "ANALYZE TABLE orders")))
}

// Redis is full, forgets its scripts, and loses answers. A purchase meanwhile gets what it is promised, or 503.
func TestRedisInTrouble(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnRedis(t)
	w := newWire(t, own.Addr())
	a := start(t, s.with(settings{"SECKILL_REDIS_URL": "redis://" + w.addr() + "/0"}))
	voucher := a.onSale(t, 2000)
	c := newCrowd(a, voucher.ID)
	sale := c.buying(t, users(a, 0, 2300), 8)
	direct := redis.NewClient(&redis.Options{Addr: own.Addr()})
	defer direct.Close()
	for _, trouble := range []func(){
		func() { check.Must(t, direct.ScriptFlush(t.Context()).Err()) },
		w.cut,
		func() {
			check.Must(t, direct.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
			c.moreRefusals(t, 8)
			check.Must(t, direct.ConfigSet(t.Context(), "maxmemory", "512mb").Err())
		},
		func() {
			release := w.hold(down)
			check.Stays(t, "answers are held", func() bool { return true })
			release()
		},
	} {
		c.moreSales(t, 100)
		trouble()
	}
	sale()
	a.kept(t, voucher.ID, c.promised)
	a.sellsOn(t, voucher.ID, 3000)
	t.Logf("%d × 202, %d × 503", c.yes, c.refused)
}

// Redis is killed under load in sync mode, where only the users' locks are on it.
func TestRedisKilledUnderLoad(t *testing.T) {
	t.Parallel()
	own := testserver.Redis(t)
	killedUnderLoad(t, own, start(t, onServers(t).with(settings{"SECKILL_REDIS_URL": own.URL()})))
}

// anotherRedis is why an instance with another Redis is not ready.
const anotherRedis = "another instance of this database uses another Redis"

// claim is the Redis that the database names, and when it was last used.
func claim(t *testing.T, s settings) model.RedisClaim {
	t.Helper()
	db := check.Value(sqldb.Open(t.Context(), sqldb.Options{DSN: s["SECKILL_DATABASE_DSN"], Slack: check.Deadline}))(t)
	defer db.Close()
	claim, _, err := repository.NewRedisClaims(db).Read(t.Context())
	check.Must(t, err)
	return claim
}

// Two instances of one database on different Redis servers would rebuild each other's hot copies for ever. The second
// is not ready and says why, until the first is gone.
func TestInstanceWithAnotherRedisIsNotReady(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	first := launch(t, s)
	voucher := first.onSale(t, 30)
	promised := first.buysAll(t, voucher.ID, users(first.app, 0, 5))
	second := prepare(t, first.path, s.with(settings{"SECKILL_REDIS_URL": testserver.Redis(t).URL()}))
	second.start(t)
	refused := func() bool {
		got, err := second.Get("/readyz")
		return err == nil && got.Status == http.StatusServiceUnavailable && strings.Contains(string(got.Body), anotherRedis)
	}
	check.Patiently(t, "the second says why it is not ready", refused)
	const longer = 7 * time.Second // than an abandoned claim is respected
	from := claim(t, s)
	check.Patiently(t, "the first has used its Redis for long", func() bool {
		second.refuses(t, voucher.ID, second.user(100))
		check.Need(t, refused(), "the second does not say any more that it is not ready")
		return claim(t, s).RenewedAt.Sub(from.RenewedAt) > longer // by the database's clock
	})
	first.ready(t)
	if said := first.output.String(); strings.Contains(said, "rebuilding a hot copy") || strings.Contains(said, anotherRedis) {
		t.Errorf("the first was disturbed:\n%s", tail(said, 20))
	}
	check.Equal(t, "times that the second says it in its log", strings.Count(second.output.String(), "because\":\""+anotherRedis), 1)
	first.kept(t, voucher.ID, promised)

	first.kill()
	last := claim(t, s)
	second.awaitReady(t)
	taken := claim(t, s)
	check.That(t, taken.Identity != last.Identity, "it is ready, and %+v is still the Redis", taken)
	order := second.accepted(t, voucher.ID, second.user(200))
	promised[order.ID] = order.UserID
	second.conserved(t, voucher.ID, promised)
}

// A Redis that restarts is another one to nobody but those who never used it: its instance goes on when Redis is back.
func TestRestartedRedisIsTheOneOfItsInstances(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnRedis(t)
	p := launch(t, s)
	voucher := p.onSale(t, 10)
	promised := map[string]string{}
	sells := func(n int) {
		order := p.accepted(t, voucher.ID, p.user(n))
		promised[order.ID] = order.UserID
	}
	for n := range 2 {
		own.Kill()
		own.Start()
		p.awaitReady(t)
		sells(n)
		check.Eventually(t, "the database names the restarted Redis", func() bool {
			return strings.Count(p.output.String(), "this instance uses the Redis of its database") == n+2
		})
	}
	p.kill()
	p.start(t) // with the same Redis
	p.awaitReady(t)
	sells(2)
	p.kept(t, voucher.ID, promised)
	said := p.output.String()
	check.That(t, !strings.Contains(said, anotherRedis), "it takes its Redis for another one:\n%s", tail(said, 20))
}

// certified starts servers that speak TLS only to clients with a certificate, and returns the settings with which the
// service may use them. The certificate of the servers has a name and no address, so that a client that is not told the
// name refuses it.
func certified(t *testing.T) settings {
	t.Helper()
	files := testserver.NewCertificates(t, "servers.test")
	mariadb := testserver.MariaDB(t, "--ssl-ca="+files.CA, "--ssl-cert="+files.Cert, "--ssl-key="+files.Key)
	onDatabase(t, mariadb, "CREATE USER 'app'@'%' IDENTIFIED BY '"+mariadbSecret+"' REQUIRE X509", "GRANT ALL ON "+testserver.DefaultSchema+".* TO 'app'@'%'")

	address := testserver.Address(t)
	_, port, _ := net.SplitHostPort(address)
	cache := testserver.Redis(t, files.Redis(port)...)
	onRedis(t, cache, "", "CONFIG", "SET", "requirepass", redisSecret)

	user := check.Value(nkeys.CreateUser())(t)
	seed := filepath.Join(t.TempDir(), "user.nk")
	check.Must(t, os.WriteFile(seed, check.Value(user.Seed())(t), 0o600))
	queue := testserver.NATS(t, `tls: {ca_file: "`+files.CA+`", cert_file: "`+files.Cert+`", key_file: "`+files.Key+`", verify: true}`,
		"authorization: {users: [{nkey: "+check.Value(user.PublicKey())(t)+"}]}")

	secure := strings.Replace(redisLink(address, redisSecret), "redis://", "rediss://", 1)
	database := strings.TrimSuffix(secure, "/0")
	s := guarded(mariadb.Addr(), "", "").with(settings{
		"SECKILL_REDIS_URL":       secure,
		"SECKILL_LOCK_MODE":       "multilock",
		"SECKILL_LOCK_REDIS_URLS": database + "/1," + database + "/2," + database + "/3",
		"SECKILL_NATS_URL":        "nats://" + queue.Addr(),
		"SECKILL_NATS_NKEY":       seed,
	})
	for _, server := range []string{"DATABASE", "REDIS", "NATS"} {
		s["SECKILL_"+server+"_TLS_CA"] = files.CA
		s["SECKILL_"+server+"_TLS_CERT"] = files.ClientCert
		s["SECKILL_"+server+"_TLS_KEY"] = files.ClientKey
		s["SECKILL_"+server+"_TLS_SERVER_NAME"] = "servers.test"
	}
	return s
}

// A sale in async, with a lock on other instances, where every server wants TLS, a certificate and an identity. Nothing
// of the keys is told.
func TestServersOverTLS(t *testing.T) {
	t.Parallel()
	s := certified(t)
	p := prepare(t, testserver.Program(t), s)
	p.Tokens = check.Value(token.New([]token.Key{{ID: "new", Secret: jwtSecret}}, "seckill", "seckill"))(t)
	p.serves(t)
	p.becomes(t, p.accepted(t, p.onSale(t, 3).ID, p.user(1)), model.OrderUnpaid)
	unseen(t, "the log", p.output.String())
	for _, variable := range []string{"SECKILL_DATABASE_TLS_KEY", "SECKILL_NATS_NKEY"} {
		for line := range strings.Lines(string(check.Value(os.ReadFile(s[variable]))(t))) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "---") && strings.Contains(p.output.String(), line) {
				t.Errorf("the log shows what %s holds", variable)
			}
		}
	}

	stranger := testserver.NewCertificates(t, "servers.test")
	other := filepath.Join(t.TempDir(), "other.nk")
	check.Must(t, os.WriteFile(other, check.Value(check.Value(nkeys.CreateUser())(t).Seed())(t), 0o600))
	wrong := map[string]settings{"the nkey of another user: SECKILL_NATS_URL": {"SECKILL_NATS_NKEY": other}}
	for server, variable := range map[string]string{"DATABASE": "SECKILL_DATABASE_DSN", "REDIS": "SECKILL_REDIS_URL", "NATS": "SECKILL_NATS_URL"} {
		prefix := "SECKILL_" + server + "_TLS_"
		wrong["another authority: "+variable] = settings{prefix + "CA": stranger.CA}
		wrong["another name: "+variable] = settings{prefix + "SERVER_NAME": ""}
		wrong["no certificate: "+variable] = settings{prefix + "CERT": "", prefix + "KEY": ""}
		wrong["a stranger's certificate: "+variable] = settings{prefix + "CERT": stranger.ClientCert, prefix + "KEY": stranger.ClientKey}
	}
	for name, change := range wrong {
		_, variable, _ := strings.Cut(name, ": ")
		out := ended(t, s.with(change), "serve")
		unseen(t, name, out)
		check.That(t, strings.Contains(out, "("+variable+")") && !strings.Contains(out, "the settings cannot be used"),
			"%s: the start does not fail at that server: %s", name, out)
	}
}

// TestLimitsWithoutRedis: each instance limits by itself.
func TestLimitsWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := testserver.Redis(t)
	a := start(t, onServers(t).with(settings{
		"SECKILL_RATE_USER": "7/h", "SECKILL_REDIS_URL": redis.URL(), "SECKILL_LOCK_MODE": "none",
	}))
	if got := passing(t, a.user(1), 3, a); got != 3 {
		t.Errorf("%d of 3 pass", got)
	}
	redis.Kill()
	if got := passing(t, a.user(1), 10, a); got != 4 {
		t.Errorf("%d more than 3 pass with 7 an hour", got)
	}
	check.Equal(t, "requests of another user that pass", passing(t, a.user(2), 20, a), 7)
}

// refusedFor is how long a command is refused: long enough for every loop that repeats a call to meet it several times.
const refusedFor = 2 * time.Second

// breakage breaks scripts off, and ends it. It ends early when it has met a call and once is enough.
type breakage struct {
	name string
	do   func(t *testing.T, b *broken, voucherID string)
}

// broken is an instance that uses Redis with an account of its own.
type broken struct {
	*app

	admin   *redis.Client
	account string
}

// breakages are all commands of all scripts, refused once and for a while, and all keys with each type that is not
// theirs.
func breakages(t *testing.T) []breakage {
	t.Helper()
	var commands []string
	files := check.Value(filepath.Glob("../../../repository/hotcopy/lua/*.lua"))(t)
	for _, file := range files {
		text := check.Value(os.ReadFile(file))(t)
		for _, found := range regexp.MustCompile(`(?:redis\.p?call|write)\('([a-z]+)'`).FindAllStringSubmatch(string(text), -1) {
			commands = append(commands, found[1])
		}
	}
	slices.Sort(commands)
	var all []breakage
	for _, command := range slices.Compact(commands) {
		for _, once := range []bool{true, false} {
			all = append(all, breakage{fmt.Sprintf("%s refused, once %v", command, once), func(t *testing.T, b *broken, _ string) {
				t.Helper()
				b.refuse(t, command, once)
			}})
		}
	}
	for _, noun := range []string{"head", "buyers", "pending", "due", "closed"} {
		for _, kind := range []string{"set", "rpush", "sadd", "zadd", "hset", "xadd"} {
			if zset := noun == "due" || noun == "closed"; kind == "zadd" && zset || kind == "hset" && !zset {
				continue
			}
			all = append(all, breakage{noun + " by " + kind, func(t *testing.T, b *broken, voucherID string) {
				t.Helper()
				b.spoil(t, voucherID, noun, kind)
			}})
		}
	}
	return all
}

// refuse takes a right away and gives it back after a while, or once Redis has refused a call for it.
func (b *broken) refuse(t *testing.T, command string, once bool) {
	t.Helper()
	may := func(rule string) {
		check.Must(t, b.admin.Do(context.WithoutCancel(t.Context()), "acl", "setuser", b.account, rule+command).Err())
	}
	may("-")
	defer may("+")
	over := time.After(refusedFor)
	check.Eventually(t, command+" was refused", func() bool {
		select {
		case <-over:
			return true
		default:
			return once && b.met(t, command)
		}
	})
}

// met reports whether Redis has refused a call for a command.
func (b *broken) met(t *testing.T, command string) bool {
	t.Helper()
	entries := check.Value(b.admin.ACLLog(t.Context(), 100).Result())(t)
	return slices.ContainsFunc(entries, func(e *redis.ACLLogEntry) bool { return e.Username == b.account && e.Object == command })
}

// spoil puts something else under a key of the copy that is open.
func (b *broken) spoil(t *testing.T, voucherID, noun, kind string) {
	t.Helper()
	key := "seckill:v1:{" + voucherID + "}:head"
	epoch := check.Value(b.admin.HGet(t.Context(), key, "epoch").Result())(t)
	if noun != "head" {
		key = "seckill:v1:{" + voucherID + "}:" + epoch + ":" + noun
	}
	args := map[string][]any{
		"set": {"x"}, "rpush": {"x"}, "sadd": {"x"}, "zadd": {1, "x"}, "hset": {"x", "x"}, "xadd": {"*", "x", "x"},
	}[kind]
	_, err := b.admin.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
		pipe.Del(t.Context(), key)
		pipe.Do(t.Context(), append([]any{kind, key}, args...)...)
		return nil
	})
	check.Must(t, err)
}

// Whatever breaks a script off in a rush, everything is well again by itself: whoever heard 202 has an order, no unit
// is lost and none is left over, and meanwhile buyers hear 503 and nothing else. There are always units, so nobody may
// hear SOLD_OUT.
func TestScriptsAreBrokenOffInARush(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, "--appendonly", "no", "--acllog-max-len", "1000")
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { check.Must(t, admin.Close()) })
	all := breakages(t)
	lanes := check.Count(t, "LANES", 4, 4)
	for lane := range lanes {
		t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
			t.Parallel()
			b := &broken{admin: admin, account: fmt.Sprint("lane", lane)}
			check.Must(t, admin.Do(t.Context(), "acl", "setuser", b.account, "on", ">secret", "~*", "&*", "+@all").Err())
			s := asyncOnServers(t).with(settings{"SECKILL_REDIS_URL": strings.Replace(server.URL(), "redis://", "redis://"+b.account+":secret@", 1)})
			b.app = start(t, s)
			for n := lane; n < len(all); n += lanes {
				t.Run(all[n].name, func(t *testing.T) { b.rush(t, all[n]) })
			}
		})
	}
}

// rush sells while scripts are broken off, and checks what comes of it.
func (b *broken) rush(t *testing.T, how breakage) {
	t.Helper()
	b.prefix = strings.NewReplacer(" ", "-", ",", "").Replace(how.name) + "." + b.account + ":"
	const stock = 1_000_000
	voucher := b.onSale(t, stock)
	c := newCrowd(b.app, voucher.ID)
	var mu sync.Mutex
	returned := map[string]bool{}
	c.lives = func(t *testing.T, user string) { // a life: every tenth gives the order back
		got := c.insist(t, user)
		if !got.Sells() || !strings.HasSuffix(user, "0") {
			return
		}
		order := remote.Decode[model.Order](t, got)
		b.becomes(t, order, model.OrderUnpaid)
		b.cancels(t, order)
		mu.Lock()
		defer mu.Unlock()
		returned[order.ID] = true
	}
	stop := c.coming(t, 6)
	c.moreSales(t, 50)
	how.do(t, b, voucher.ID)
	ended := time.Now()
	c.moreSales(t, 20)
	stop()
	audit := b.quiet(t, voucher.ID)
	t.Logf("well again %.1f s after its end; %d sold, %d refused, %d returned", time.Since(ended).Seconds(), c.yes, c.refused, len(returned))
	check.Equal(t, "users who heard that all is sold", c.soldOut, 0)
	orders := b.conserved(t, voucher.ID, c.promised)
	for id := range c.promised {
		want := model.OrderUnpaid
		if returned[id] {
			want = model.OrderCanceled
		}
		if orders[id].Status != want {
			t.Errorf("order %s was promised and is %q (%s), want %s", id, orders[id].Status, orders[id].Reason, want)
		}
	}
	left := fmt.Sprintf(`{"stock":%d}`, audit.Database.LiveOrders+3)
	got := b.Insist(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/stock", b.Admin(t), left)
	check.Need(t, got.Status == http.StatusOK, "lower the stock: %d %s", got.Status, got.Body)
	b.sellsOn(t, voucher.ID, stock)
}
