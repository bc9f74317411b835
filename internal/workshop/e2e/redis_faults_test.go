//go:build faults

//part:redis
package e2e_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// Redis is killed under load in sync mode, where only the users' locks are on it.
func TestRedisKilledUnderLoad(t *testing.T) {
	t.Parallel()
	own := testserver.Redis(t)
	killedUnderLoad(t, own, start(t, onServers(t).with(settings{"SECKILL_REDIS_URL": own.URL()})))
}

const anotherRedis = "another instance of this database uses another Redis"

func claim(t *testing.T, s settings) model.RedisClaim {
	t.Helper()
	db := check.Value(sqldb.Open(t.Context(), sqldb.Options{DSN: s["SECKILL_DATABASE_DSN"], Slack: check.Deadline}))(t)
	defer db.Close()
	claim, _, err := (&repository.RedisClaims{DB: db}).Read(t.Context())
	check.Must(t, err)
	return claim
}

// On another Redis an instance would rebuild others' copies for ever: it is unready until they leave, and says why.
func TestInstanceWithAnotherRedisIsNotReady(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnRedis(t)
	first := launch(t, s)
	voucher, promised := first.onSale(t, 30), map[string]string{}
	sells := func(p *process, n int) {
		order := p.accepted(t, voucher.ID, p.user(n))
		promised[order.ID] = order.UserID
	}
	for n := range 2 {
		sells(first, n)
		own.Kill()
		own.Start()
		first.awaitReady(t)
		check.Eventually(t, "the database names the restarted Redis", func() bool {
			return strings.Count(first.output.String(), "this instance uses the Redis of its database") == n+2
		})
	}
	first.restarts(t) // with the same Redis
	sells(first, 2)
	second := prepare(t, first.path, s.with(settings{"SECKILL_REDIS_URL": testserver.Redis(t).URL()}))
	second.start(t)
	refused := func() bool {
		got, err := second.Get("/readyz")
		return err == nil && got.Status == http.StatusServiceUnavailable &&
			strings.Contains(string(got.Body), anotherRedis)
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
	check.That(t, !strings.Contains(first.output.String(), anotherRedis), "the first was disturbed:\n%s",
		tail(first.output.String(), 20))
	check.Equal(t, "times that the second says it in its log",
		strings.Count(second.output.String(), "because\":\""+anotherRedis), 1)
	first.kept(t, voucher.ID, promised)

	first.kill()
	last := claim(t, s)
	second.awaitReady(t)
	taken := claim(t, s)
	check.That(t, taken.Identity != last.Identity, "it is ready, and %+v is still the Redis", taken)
	sells(second, 200)
	second.conserved(t, voucher.ID, promised)
}

// certified starts TLS servers that demand clients' certificates, and returns the settings for them. Their certificate
// has a name and no address: a client without the name refuses it.
func certified(t *testing.T) settings {
	files := testserver.NewCertificates(t, "servers.test")
	mariadb := testserver.MariaDB(t, "--ssl-ca="+files.CA, "--ssl-cert="+files.Cert, "--ssl-key="+files.Key)
	onDatabase(t, mariadb, "CREATE USER 'app'@'%' IDENTIFIED BY '"+mariadbSecret+"' REQUIRE X509",
		"GRANT ALL ON "+testserver.DefaultSchema+".* TO 'app'@'%'")

	address := testserver.Address(t)
	_, port, _ := net.SplitHostPort(address)
	cache := testserver.Redis(t, files.Redis(port)...)
	onRedis(t, cache, "", "CONFIG", "SET", "requirepass", redisSecret)

	user := check.Value(nkeys.CreateUser())(t)
	seed := filepath.Join(t.TempDir(), "user.nk")
	check.Must(t, os.WriteFile(seed, check.Value(user.Seed())(t), 0o600))
	queue := testserver.NATS(t, `tls: {ca_file: "`+files.CA+`", cert_file: "`+files.Cert+`", key_file: "`+files.Key+
		`", verify: true}`,
		"authorization: {users: [{nkey: "+check.Value(user.PublicKey())(t)+"}]}")

	secure := strings.Replace(redisLink(address, redisSecret), "redis://", "rediss://", 1)
	database := strings.TrimSuffix(secure, "/0")
	s := guarded(mariadb.Addr(), "", "").with(settings{
		"SECKILL_REDIS_URL": secure, "SECKILL_LOCK_MODE": "multilock",
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

// An async sale with a lock on other instances: every server wants TLS, a certificate and an identity. No key shows.
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
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "---") &&
				strings.Contains(p.output.String(), line) {
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
		wrong["a stranger's certificate: "+variable] = settings{
			prefix + "CERT": stranger.ClientCert,
			prefix + "KEY":  stranger.ClientKey,
		}
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
	check.Equal(t, "of 3 requests pass", passing(t, a.user(1), 3, a), 3)
	redis.Kill()
	check.Equal(t, "more than 3 that pass with 7 an hour", passing(t, a.user(1), 10, a), 4)
	check.Equal(t, "requests of another user that pass", passing(t, a.user(2), 20, a), 7)
}
