//go:build faults

//part:redis

package e2e_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// certified starts servers that speak TLS only to clients with a certificate, and returns the
// settings with which the service may use them. The certificate of the servers has a name and
// no address, so that a client that is not told the name refuses it.
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

// A sale in async, with a lock on other instances, where every server wants TLS, a certificate
// and an identity. Nothing of the keys is told.
func TestServersOverTLS(t *testing.T) {
	t.Parallel()
	s := certified(t)
	p := prepare(t, testserver.Program(t), s)
	p.Tokens = check.Value(token.New([]token.Key{{ID: "new", Secret: jwtSecret}}, "seckill", "seckill"))(t)
	p.start(t)
	p.awaitReady(t)
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
		if !strings.Contains(out, "("+variable+")") || strings.Contains(out, "the settings cannot be used") {
			t.Errorf("%s: the start does not fail at that server: %s", name, out)
		}
	}
}
