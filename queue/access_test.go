package queue_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/queue"
)

func written(t *testing.T, content []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	check.Must(t, os.WriteFile(name, content, 0o600))
	return name
}

func public(t *testing.T, pair nkeys.KeyPair) string {
	t.Helper()
	return check.Value(pair.PublicKey())(t)
}

// operated is a server whose users are named by credentials, and those of one.
func operated(t *testing.T) (server *testserver.Server, credentials string) {
	t.Helper()
	operator, account := check.Value(nkeys.CreateOperator())(t), check.Value(nkeys.CreateAccount())(t)
	system, user := check.Value(nkeys.CreateAccount())(t), check.Value(nkeys.CreateUser())(t)
	operatorJWT := check.Value(jwt.NewOperatorClaims(public(t, operator)).Encode(operator))(t)
	systemJWT := check.Value(jwt.NewAccountClaims(public(t, system)).Encode(operator))(t)
	claims := jwt.NewAccountClaims(public(t, account))
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
	}
	accountJWT := check.Value(claims.Encode(operator))(t)
	userJWT := check.Value(jwt.NewUserClaims(public(t, user)).Encode(account))(t)
	server = testserver.NATS(t, "operator: "+operatorJWT, "system_account: "+public(t, system), "resolver: MEMORY",
		"resolver_preload: {"+public(t, system)+": "+systemJWT+", "+public(t, account)+": "+accountJWT+"}")
	return server, written(t, check.Value(jwt.FormatUserConfig(userJWT, check.Value(user.Seed())(t)))(t))
}

func TestUserOfCredentials(t *testing.T) {
	t.Parallel()
	server, credentials := operated(t)
	f := onServer(t, queue.Options{URL: server.URL(), Access: queue.Access{Credentials: credentials}})
	check.Must(t, f.open(t, nil).Publish(t.Context(), some("a", 1)))
	events := check.Value(queue.OpenEvents(t.Context(), queue.EventOptions{
		URL: server.URL(), Access: f.options.Access, Stream: "EVENTS", Deployment: f.options.Deployment, Log: f.log.Logger(),
	}))(t)
	events.Close()

	if _, err := f.tryOpen(t, func(o *queue.Options) { o.Access = queue.Access{} }); err == nil || !strings.Contains(err.Error(), "uthorization") {
		t.Errorf("nobody is let in: %v", err)
	}
}

func TestUserOfNKey(t *testing.T) {
	t.Parallel()
	user, other := check.Value(nkeys.CreateUser())(t), check.Value(nkeys.CreateUser())(t)
	account := check.Value(nkeys.CreateAccount())(t)
	server := testserver.NATS(t, "authorization: {users: [{nkey: "+public(t, user)+"}]}")
	open := func(seed []byte) error {
		f := onServer(t, queue.Options{URL: server.URL(), Access: queue.Access{NKey: written(t, seed)}})
		_, err := f.tryOpen(t, nil)
		if said := f.log.String(); strings.Contains(said, string(seed)) || err != nil && strings.Contains(err.Error(), string(seed)) {
			t.Errorf("the seed is told: %v\n%s", err, said)
		}
		return err
	}
	check.Must(t, open(check.Value(user.Seed())(t)))
	for want, seed := range map[string][]byte{
		"uthorization":         check.Value(other.Seed())(t),
		"holds no seed":        check.Value(account.Seed())(t),
		"seed of a user (SU…)": []byte("SUthisIsNoSeedAtAll"),
	} {
		if err := open(seed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
