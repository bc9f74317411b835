package e2e_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestInstanceThatDoesNotMigrateIsReadyOnceSomebodyHas(t *testing.T) {
	t.Parallel()
	s := onServers(t).with(settings{"SECKILL_MIGRATE": "off"})
	a := start(t, s)
	if got, err := a.Get("/readyz"); err != nil || got.Status != http.StatusServiceUnavailable ||
		!strings.Contains(string(got.Body), "seckill migrate") {
		t.Fatalf("on an empty schema: %d %s, %v", got.Status, got.Body, err)
	}
	operate(t, s, "", "migrate")
	a.ready(t)
	a.onSale(t, 1)
}

// TestAStopServesOn: from the signal on an instance is unready and serves on. Each answer closes its connection.
func TestAStopServesOn(t *testing.T) {
	t.Parallel()
	instance := check.Value(begin(t, embeddedSettings(t).with(settings{"SECKILL_DRAIN_GRACE": "1h"})))(t)
	a := newApp(t, instance.BaseURL(), instance.OpsURL())
	voucher := a.onSale(t, 10)
	ctx, enough := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		instance.Stop(ctx)
	}()
	a.unready(t)
	for n := range 5 {
		if n == 3 {
			a.Client.CloseIdleConnections()
		}
		token := a.as(t, a.user(n))
		answer := a.requests(t, http.MethodPost, a.URL+"/api/v1/vouchers/"+voucher.ID+"/seckill",
			func(r *http.Request) {
				r.Header.Set("Authorization", "Bearer "+token)
			})
		check.Equal(t, "a purchase", answer.Status, http.StatusCreated)
		check.Equal(t, "it closes its connection", answer.Header.Get("Connection"), "close")
	}
	enough()
	check.Receive(t, "the stop", stopped)
}

// The service, one process, is killed (kill -9: no clean end) after promising an order that may be in the queue only.
func TestEmbeddedOrdersSurviveARestart(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := launch(t, embeddedSettings(t).with(settings{"SECKILL_ORDER_MODE": mode}))
			voucher := p.onSale(t, 2)
			order := p.bought(t, voucher.ID, p.user(1))
			p.restarts(t)
			p.bought(t, voucher.ID, p.user(2)) // it sells again
			p.becomes(t, order, model.OrderUnpaid)
			again := refused(t, p.buy(t, voucher.ID, p.user(1)), model.CodeAlreadyOrdered)
			check.Equal(t, "the order of who buys again", again.OrderID, order.ID)
			p.sellsOn(t, voucher.ID, 10)
		})
	}
}

// The sale with curl does what README.md says, line by line, in both languages, against an embedded server.
func TestTheSaleOfTheREADME(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "README.zh-CN.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text := string(check.Value(os.ReadFile("../../../" + page))(t))
			commands := regexp.MustCompile("(?s)\n```sh\n(API=.*?)```").FindStringSubmatch(text)
			check.Need(t, commands != nil, "there is no sale")
			server := launch(t, embeddedSettings(t))
			script := strings.NewReplacer("http://127.0.0.1:8080", server.URL, "go run .", testserver.Program(t),
				"curl -s", "curl -sS -w '\\n%{http_code}\\n'").
				Replace(commands[1])
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
			cmd.Env = append(os.Environ(), server.settings.environ()...)
			out, err := cmd.CombinedOutput()
			check.Need(t, err == nil, "%v\n%s", err, out)
			codes := regexp.MustCompile(`(?m)^\d{3}$`).FindAllString(string(out), -1)
			// Again, pay, the order, the audit, the stock, cancel.
			check.Equal(t, "the answers", strings.Join(codes, " "), "409 202 200 200 200 200")
			for _, want := range []string{"ALREADY_ORDERED", "payment_url", `"balanced":true`, `"stock":105`, `"status":"canceled"`} {
				check.That(t, strings.Contains(string(out), want), "no answer has %s:\n%s", want, out)
			}
		})
	}
}

// The examples do what their pages say, beside a server in each mode.
func TestExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "seckill/docs/examples/...").CombinedOutput()
	check.Need(t, err == nil, "%v\n%s", err, out)
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := start(t, embeddedSettings(t).with(settings{"SECKILL_ORDER_MODE": mode}))
			env := append(os.Environ(), "SHOP_SECKILL="+a.URL, "SECKILL_JWT_SECRET="+secret, "ROOM_SECRET=room", "ADDR=127.0.0.1:0")

			coupons := a.onSale(t, 1)
			checkout := func(customer, invoice string) string {
				cmd := exec.CommandContext(t.Context(), dir+"/coupon-beside-a-shop", coupons.ID, customer, invoice)
				cmd.Env = env
				return strings.TrimSpace(string(check.Value(cmd.Output())(t)))
			}
			coupon := checkout("customer-1", "invoice-1")
			order := a.mine(t, coupons.ID, "customer-1")[0]
			check.That(t, order.Status == model.OrderPaid && coupon == "coupon: "+order.Code, "%s: %+v", coupon, order)
			check.Equal(t, "a second click", checkout("customer-1", "invoice-1"), coupon)
			check.Equal(t, "the coupon of another one", checkout("customer-2", "invoice-2"), "no coupon: SOLD_OUT")

			signer, said := exec.CommandContext(t.Context(), dir+"/behind-a-waiting-room"), &check.Log{}
			signer.Env, signer.Stderr = env, said
			check.Must(t, signer.Start())
			defer func() { _, _ = signer.Process.Kill(), signer.Wait() }()
			check.Patiently(t, "it signs", func() bool { return strings.HasSuffix(said.String(), "\n") })
			_, url, _ := strings.Cut(strings.TrimSpace(said.String()), "signs at ")
			voucher := a.Create(t, map[string]any{"stock": 1, "groups": []string{"admitted"}})
			buy := func(token string) api.Answer { return a.once(t, "POST /vouchers/"+voucher.ID+"/seckill", token, nil) }
			refused(t, buy(a.as(t, "ann")), model.CodeNotEligible)
			until := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
			sum := hmac.New(sha256.New, []byte("room"))
			sum.Write([]byte("ann " + until))
			for ticket, want := range map[string]int{hex.EncodeToString(sum.Sum(nil)): http.StatusOK, "forged": http.StatusForbidden} {
				got := check.Value(http.Get(url + "/?visitor=ann&until=" + until + "&ticket=" + ticket))(t) //nolint:bodyclose // below
				defer got.Body.Close()
				token := string(check.Value(io.ReadAll(got.Body))(t))
				check.Equal(t, "the signer's answer", got.StatusCode, want)
				if want == http.StatusOK {
					check.That(t, buy(token).Status < http.StatusMultipleChoices, "who was let through cannot buy")
				}
			}
		})
	}
}

// The secrets of a deployment, each unlike anything else and full of what URLs, DSNs and quotation marks trip over.
const (
	mariadbSecret = `mdb:Q7/xw@Kv2?Zr#9Lt%41 Bn`
	redisSecret   = `rds/Hy6@Pf3:Wd8?Mc%2F&Tg"5`
	natsSecret    = `nts:Vu4/Sj1@Ea9#Xo7?Ri%40b`
	natsToken     = `ntkGc5wJz8sNp2dYk6fLq3hTm`
	lockSecret    = `lck@Bx7/Uo2:Fe5?Ya%3A9#Dw1`
	jwtSecret     = `jwt+Ks8/Zv3=Qm6wRt1Xy9Lp4Hc7Gb2Fn5`
	oldJWTSecret  = `old/Nd5+Wf2=Ub8yCe3Vi6Jo9Sa1Tx4Mk7`
	webhookSecret = `whsec_R2ZuOFBsNHdRejdKeTNYdDZNa1pwNExj`
	codeSecret    = `cod/Yb4+Rk9=Lw2mXs7Dn5Pf1Ge8Hj3Vt6`
	otelSecret    = `otl:Jk3/Wm8+Qs5=Ze2yBt6Vh9Xr4Gd7`
	userPassword  = `usr Tz6/Ow3@Bk8:Ih1 Pq5`
)

func allSecrets() []string {
	return []string{
		mariadbSecret, redisSecret, natsSecret, natsToken, lockSecret, jwtSecret, oldJWTSecret, webhookSecret,
		codeSecret, otelSecret, userPassword,
	}
}

// unseen demands that a text has nothing of a secret: no piece of eight bytes, plain or in any encoding.
func unseen(t *testing.T, where, text string) {
	t.Helper()
	const piece = 8
	for _, secret := range allSecrets() {
		forms := []string{
			url.QueryEscape(secret), url.PathEscape(secret), url.UserPassword("", secret).String()[1:],
			strings.Trim(fmt.Sprintf("%q", secret), `"`),
			base64.StdEncoding.EncodeToString([]byte(secret))[:20], hex.EncodeToString([]byte(secret)),
		}
		for i := range len(secret) - piece + 1 {
			forms = append(forms, secret[i:i+piece])
		}
		for _, form := range forms {
			if strings.Contains(text, form) || strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
				at := strings.Index(strings.ToLower(text), strings.ToLower(form))
				t.Errorf("%s shows %q of the secret %q: …%s…", where, form, secret[:3],
					text[max(0, at-100):min(len(text), at+len(form)+60)])
				break
			}
		}
	}
}

func redisLink(addr, password string) string {
	return (&url.URL{Scheme: "redis", User: url.UserPassword("", password), Host: addr, Path: "/0"}).String()
}

func natsLink(addr string, user *url.Userinfo) string {
	return (&url.URL{Scheme: "nats", User: user, Host: addr}).String()
}

// guarded are settings with every secret there is, right for servers that ask for them.
func guarded(database, redis, nats string) settings {
	return settings{
		"SECKILL_DATABASE_DSN":    "app:" + mariadbSecret + "@tcp(" + database + ")/" + testserver.DefaultSchema,
		"SECKILL_REDIS_URL":       redisLink(redis, redisSecret),
		"SECKILL_NATS_URL":        natsLink(nats, url.UserPassword("app", natsSecret)),
		"SECKILL_LOCK_REDIS_URLS": redisLink("127.0.0.1:1", lockSecret) + "," + redisLink("127.0.0.1:2", lockSecret),
		"SECKILL_JWT_SECRET":      "new=" + jwtSecret + ",old=" + oldJWTSecret, "SECKILL_WEBHOOK_SECRETS": webhookSecret,
		"SECKILL_CODE_KEY": codeSecret, "SECKILL_ORDER_MODE": "async", "SECKILL_LOG_LEVEL": "debug",
		// The second header is not encoded: the library shows such a one.
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
		"OTEL_EXPORTER_OTLP_HEADERS":  "authorization=Bearer%20" + url.QueryEscape(otelSecret) + ",x=%zz" + otelSecret,
		"SECKILL_HTTP_ADDR":           "127.0.0.1:0", "SECKILL_OPS_ADDR": "127.0.0.1:0",
	}
}

func ended(t *testing.T, s settings, args ...string) string {
	t.Helper()
	ctx := check.Context(t)
	cmd := exec.CommandContext(ctx, testserver.Program(t), args...)
	cmd.Env = s.environ()
	out, _ := cmd.CombinedOutput() // most of the runs are to fail
	check.That(t, len(out) != 0 && ctx.Err() == nil, "%q said %q: %v", args, out, ctx.Err())
	return string(out)
}
