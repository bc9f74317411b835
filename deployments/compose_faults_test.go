//go:build faults

//part:proxies

package deployments

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"seckill/handler"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

type image struct {
	programs         []string // of this machine
	files            map[string]string
	entry, otherwise []string // what comes before the command, and the command where the compose file has none
	directory        string
	environ, health  []string
}

// released is the image of the service, as it is told to run.
func released(t *testing.T) image {
	var file struct {
		Config struct {
			Env, Entrypoint, Cmd []string
			Healthcheck          struct{ Test []string }
		}
	}
	check.Must(t, json.Unmarshal([]byte(read(t, "image.json")), &file))
	config := file.Config
	return image{
		programs: []string{testserver.Program(t)}, environ: config.Env, entry: config.Entrypoint, otherwise: config.Cmd,
		health: config.Healthcheck.Test[1:],
	}
}

// brings builds what the image of a service brings, from the programs of this machine.
func brings(t *testing.T, s service) image {
	switch name, _, _ := strings.Cut(s.Image, ":"); name {
	case "seckill":
		return released(t)
	case "nginx":
		return image{otherwise: []string{"nginx", "-e", "stderr", "-g", "daemon off;"}}
	case "redis":
		return image{directory: "/data"}
	case "seckill-nats":
		return image{programs: []string{testserver.NATSProgram(t)}, entry: []string{"nats-server"}}
	case "prom/prometheus":
		return image{
			programs: []string{check.Value(filepath.Abs("../bin/prometheus"))(t)},
			entry:    []string{"prometheus"},
		}
	case "mariadb":
		return image{
			files: map[string]string{
				"/etc/mysql/my.cnf":             "!includedir /etc/mysql/conf.d/\n",
				"/usr/local/bin/healthcheck.sh": "#!/bin/sh\nexec mariadb-admin --protocol=tcp --host=127.0.0.1 ping\n",
			},
			entry: []string{"sh", "-euc", `
mariadb-install-db --auth-root-authentication-method=normal --skip-test-db >&2
mariadbd --bootstrap <<SQL
FLUSH PRIVILEGES;
CREATE DATABASE $MARIADB_DATABASE;
CREATE USER $MARIADB_USER@'%' IDENTIFIED BY '$(cat "$MARIADB_PASSWORD_FILE")';
GRANT ALL ON $MARIADB_DATABASE.* TO $MARIADB_USER@'%';
ALTER USER root@localhost IDENTIFIED BY '$(cat "$MARIADB_ROOT_PASSWORD_FILE")';
SQL
exec mariadbd "$@"`, "mariadbd"},
		}
	default:
		t.Fatalf("no program for the image %s", s.Image)
		return image{}
	}
}

type project struct {
	composition

	envFile        string
	profiles       []string
	images         map[string]image  // by service
	secrets, names string            // a directory, and a file for /etc/hosts
	published      map[string]string // where a port of the machine leads
	running        map[string]*testserver.Command
}

const gateway = "172.30.47.1"

// network routes between the networks of the containers: each has its own.
const network = `
mount -t tmpfs tmpfs /run
echo 1 >/proc/sys/net/ipv4/ip_forward
ip link set lo up && ip address add ` + gateway + `/32 dev lo
exec "$@"`

func (p *project) has(name string) bool {
	s := p.Services[name]
	return len(s.Profiles) == 0 || slices.ContainsFunc(s.Profiles,
		func(one string) bool { return slices.Contains(p.profiles, one) })
}

// root makes a container's file system of this machine's: compose's mounts are unchanged, the rest is read-only.
const root = `
mount --make-rprivate /
top=/run/containers/$1; mkdir -p $top/upper $top/work $top/root
mount -t overlay overlay -o lowerdir=/,upperdir=$top/upper,workdir=$top/work $top/root
top=$top/root; rm -rf $top/etc/mysql $top/etc/redis $top/etc/nginx $top/run; mkdir -p $top/run $top/usr/local/bin
for d in proc sys dev; do mount --rbind /$d $top/$d; done
into() { mkdir -p "$(dirname "$top$2")"; if [ -d "$1" ]; then mkdir -p "$top$2"; else touch "$top$2"; fi; mount --bind "$1" "$top$2"; mount -o remount,bind,ro "$top$2"; }
empty() { mkdir -p "$top$1"; mount -t tmpfs -o "$2" tmpfs "$top$1"; }
`

// start starts the container of a service, behind those on which it depends.
func (p *project) start(t *testing.T, name string) {
	if p.running[name] != nil {
		return
	}
	s := p.Services[name]
	for needed, how := range s.DependsOn {
		check.That(t, p.has(needed) || how.Required != nil && !*how.Required, "%s needs %s, which %s does not start",
			name, needed, p.envFile)
		if p.has(needed) {
			p.start(t, needed)
		}
	}
	brought := brings(t, s)
	p.images[name] = brought
	user, group, _ := strings.Cut(s.User, ":")
	script := root
	for _, program := range brought.programs {
		script += fmt.Sprintf("into '%s' '/usr/local/bin/%s'\n", program, filepath.Base(program))
	}
	for path, text := range brought.files {
		script += fmt.Sprintf("mkdir -p \"$top%s\"\ncat >\"$top%s\" <<'END'\n%sEND\nchmod 755 \"$top%[2]s\"\n",
			filepath.Dir(path), path, text)
	}
	script += fmt.Sprintf("into '%s' /etc/hosts\n", p.names)
	for _, secret := range s.Secrets {
		script += fmt.Sprintf("into '%s' '/run/secrets/%s'\n",
			filepath.Join(p.secrets, filepath.Base(p.Secrets[secret].File)), secret)
	}
	for _, volume := range s.Volumes {
		source, at, _ := strings.Cut(volume, ":")
		if _, named := p.Volumes[source]; named {
			script += fmt.Sprintf("empty '%s' 'uid=%s,gid=%s,mode=0755'\n", at, user, group)
		} else {
			script += fmt.Sprintf("into '%s' '%s'\n", check.Value(filepath.Abs(source))(t),
				strings.TrimSuffix(at, ":ro"))
		}
	}
	for _, directory := range s.Tmpfs {
		at, options, _ := strings.Cut(directory, ":")
		script += fmt.Sprintf("empty '%s' '%s'\n", at, options)
	}
	script += "mount -o remount,ro \"$top\"\nshift\nexec chroot \"$top\" \"$@\"\n"
	if len(s.Command) == 0 {
		s.Command = brought.otherwise
	}
	command := []string{"--net=/run/netns/" + name, "unshare", "--mount", "sh", "-euc", script, "sh", name}
	tied := []string{"setpriv", "--pdeathsig=KILL"} // another user's processes do not keep what StartTied asked for
	command = append(command, p.confined(t, name, slices.Concat(tied, brought.entry, s.Command)...)...)
	p.running[name] = testserver.Run(t, nil, "nsenter", command...)
	check.Patiently(t, name+" is healthy", func() bool {
		check.Need(t, !p.running[name].Ended(), "%s has ended", name)
		_, err := p.run(t, name, p.health(name)...)
		return err == nil
	})
}

func (p *project) confined(t *testing.T, name string, command ...string) []string {
	t.Helper()
	s, brought := p.Services[name], p.images[name]
	user, group, _ := strings.Cut(s.User, ":")
	words := []string{
		"setpriv", "--reuid=" + user, "--regid=" + group, "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
		"--no-new-privs",
		"env", "-i", "-C", "/" + strings.TrimPrefix(brought.directory, "/"),
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/",
	}
	return slices.Concat(words, brought.environ, interpolated(t, s, p.envFile, "/run/secrets"), command)
}

func (p *project) run(t *testing.T, name string, command ...string) (string, error) {
	t.Helper()
	inside := append([]string{"--target=" + strconv.Itoa(p.running[name].PID()), "--net", "--mount", "--root", "--wd"},
		p.confined(t, name, command...)...)
	out, err := exec.CommandContext(t.Context(), "nsenter", inside...).CombinedOutput()
	return string(out), err
}

func (p *project) health(name string) []string {
	s := p.Services[name]
	said, _ := s.Healthcheck["test"].([]any)
	if said == nil {
		return p.images[name].health
	}
	words := make([]string, len(said))
	for i, word := range said {
		words[i] = strings.ReplaceAll(fmt.Sprint(word), "$$", "$")
	}
	if words[0] == "CMD-SHELL" {
		return append([]string{"sh", "-c"}, words[1:]...)
	}
	return words[1:]
}

func (p *project) join(t *testing.T) {
	hosts, next := "127.0.0.1 localhost\n", 20
	for name, s := range p.Services {
		if !p.has(name) {
			continue
		}
		address := s.address("inside")
		if address == "" {
			address = fmt.Sprintf("172.30.47.%d", next)
			next++
		}
		networks, _ := s.Networks.(map[string]any)
		inside, _ := networks["inside"].(map[string]any)
		aliases, _ := inside["aliases"].([]any)
		hosts += fmt.Sprintln(append([]any{address, name}, aliases...)...)
		for _, port := range s.Ports {
			parts := strings.Split(port, ":")
			p.published[parts[len(parts)-2]] = net.JoinHostPort(address, parts[len(parts)-1])
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-euc", `
ip netns add "$1" && ip link add "$1" type veth peer name eth0 netns "$1"
echo 1 >"/proc/sys/net/ipv4/conf/$1/proxy_arp" && echo 0 >"/proc/sys/net/ipv4/neigh/$1/proxy_delay"
ip link set "$1" up && ip route add "$2/32" dev "$1" src `+gateway+`
ip -n "$1" address add "$2/24" dev eth0 && ip -n "$1" link set lo up && ip -n "$1" link set eth0 up`, "sh", name, address).CombinedOutput()
		check.That(t, err == nil, "the network of %s: %v\n%s", name, err, out)
	}
	p.names = filepath.Join(t.TempDir(), "hosts")
	check.Must(t, os.WriteFile(p.names, []byte(hosts), 0o644))
}

func composed(t *testing.T, envFile string) *project {
	p := &project{
		composition: compose(t), envFile: envFile, secrets: secrets(t), images: map[string]image{},
		published: map[string]string{}, running: map[string]*testserver.Command{},
	}
	profile := regexp.MustCompile(`docker compose .* --env-file deployments/` + envFile +
		` --profile (\w+) up`).FindStringSubmatch(read(t, envFile))
	check.That(t, profile != nil, "%s does not say how it is used", envFile)
	if p.profiles = profile[1:]; profile[1] == "async" {
		p.profiles = append(p.profiles, "monitoring") // which starts beside any of them
	}
	p.join(t)
	for name := range p.Services {
		if p.has(name) && name != "grafana" { // for which there is no program here
			p.start(t, name)
		}
	}
	return p
}

// client reaches the shipped proxy through its published port, and the simulator through its name.
func (p *project) client(t *testing.T) *http.Client {
	t.Helper()
	authority := x509.NewCertPool()
	check.That(t, authority.AppendCertsFromPEM([]byte(read(t, filepath.Join(p.secrets, "tls_certificate")))),
		"no certificate")
	client := remote.Client(t, gateway, 4)
	transport, _ := client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, _ := net.SplitHostPort(address)
		return dial(ctx, network, p.published[port])
	}
	return client
}

// For each env file: what compose would start runs from the unchanged shipped files, and sells.
func TestComposeAsShipped(t *testing.T) {
	t.Parallel()
	for _, envFile := range []string{"trial.env", "async.env", "multilock.env"} {
		t.Run(strings.TrimSuffix(envFile, ".env"), func(t *testing.T) {
			t.Parallel()
			if testserver.Isolated(t, network) {
				composed(t, envFile).sells(t)
			}
		})
	}
}

func (p *project) sells(t *testing.T) {
	shop := remote.Service{
		URL: "https://localhost:8443", Client: p.client(t),
		Tokens: check.Value(remote.Authority(read(t, filepath.Join(p.secrets, "jwt_secret"))))(t),
	}
	check.Equal(t, "ready through the proxy", shop.Status("/readyz"), http.StatusOK)
	voucher := shop.Create(t, map[string]any{"stock": 3})
	buyer := shop.Token(t, "u1", model.RoleUser)
	bought := shop.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", buyer, nil)
	order := remote.Decode[model.Order](t, bought)
	reaches := func(want model.OrderStatus) {
		check.Patiently(t, "the order is "+string(want), func() bool {
			order = remote.Decode[model.Order](t, shop.Insist(t, http.MethodGet, "/orders/"+order.ID, buyer, nil))
			return order.Status == want
		})
	}
	reaches(model.OrderUnpaid)
	switch p.profiles[0] {
	case "trial":
		check.Equal(t, "the console", shop.Status("/console/sign-in"), http.StatusOK)
		started := remote.Decode[handler.PaymentStart](t,
			shop.Insist(t, http.MethodPost, "/orders/"+order.ID+"/pay", buyer, nil))
		answer, err := shop.Client.PostForm(started.PaymentURL, url.Values{"decision": {"approve"}})
		check.Must(t, err)
		check.Must(t, answer.Body.Close())
		check.Equal(t, "the page of the payment", answer.StatusCode, http.StatusSeeOther)
		reaches(model.OrderPaid)
	case "async":
		check.Equal(t, "a purchase", bought.Status, http.StatusAccepted)
		check.Patiently(t, "Prometheus reads both instances and has tried its rules", func() bool {
			said, err := p.run(t, "prometheus", "wget", "-qO-",
				"http://127.0.0.1:9090/api/v1/targets?state=active&scrapePool=seckill",
				"http://127.0.0.1:9090/api/v1/rules")
			check.Must(t, err)
			check.That(t, !strings.Contains(said, `"health":"err"`), "a rule fails: %s", said)
			return strings.Count(said, `"health":"up"`) == 2 && strings.Contains(said, `"health":"ok"`) && !strings.Contains(said, `"health":"unknown"`)
		})
	case "multilock":
		for _, lock := range []string{"redis-lock-1", "redis-lock-2", "redis-lock-3"} {
			said, err := p.run(t, lock, "sh", "-c",
				`REDISCLI_AUTH="$(cut -d" " -f2 /run/secrets/redis_auth)" redis-cli info commandstats`)
			check.That(t, err == nil && strings.Contains(said, "cmdstat_eval"), "%s is not asked for a lock: %v, %s",
				lock, err, said)
		}
	}
	audit := shop.Audit(t, voucher.ID)
	check.That(t, audit.Balanced && audit.Database.LiveOrders == 1, "the audit: %+v", audit)
}
