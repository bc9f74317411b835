package payment

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"seckill/internal/workshop/check"
)

const (
	oldSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret = "a plain secret of the provider"
)

func signed(t testing.TB, secret string, at time.Time, body string) http.Header {
	t.Helper()
	by := check.Value(NewSignatures([]string{secret}))(t)
	return check.Value(by.Sign("msg_1", at, []byte(body)))(t)
}

// The example of the specification's reference implementations, which all libraries are tested with.
func TestTheSpecificationsExample(t *testing.T) {
	t.Parallel()
	at := time.Unix(1614265330, 0)
	by := check.Value(NewSignatures([]string{oldSecret}))(t)
	header := check.Value(by.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", at, []byte(`{"test": 2432232314}`)))(t)
	check.Equal(t, "signature", header.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	check.Equal(t, "timestamp", header.Get("webhook-timestamp"), "1614265330")
	check.Equal(t, "id", header.Get("webhook-id"), "msg_p5jXN8AQM9LWM0D4loKWxJek")
}

func TestEverySecretVerifies(t *testing.T) {
	t.Parallel()
	const body = `{"type":"payment.succeeded"}`
	both := check.Value(NewSignatures([]string{newSecret, oldSecret}))(t)
	for _, secret := range []string{newSecret, oldSecret} {
		check.Must(t, check.ErrorOf(both.Verify(signed(t, secret, time.Now(), body), []byte(body))))
	}
	// The same bytes, written the other way, and without padding.
	encoded := "whsec_" + base64.StdEncoding.EncodeToString([]byte(newSecret))
	check.Must(t, check.ErrorOf(both.Verify(signed(t, encoded, time.Now(), body), []byte(body))))
	check.Must(t, check.ErrorOf(both.Verify(signed(t, strings.TrimRight(encoded, "="), time.Now(), body),
		[]byte(body))))
	// A provider that replaces its secret signs with both.
	header := signed(t, "unknown to us, and as long as ours", time.Now(), body)
	header.Set("webhook-signature", header.Get("webhook-signature")+" v1a,AAAA "+
		signed(t, oldSecret, time.Now(), body).Get("webhook-signature"))
	check.Must(t, check.ErrorOf(both.Verify(header, []byte(body))))
}

// The official libraries decode a base64 secret, others take it as it stands, also behind whsec_. All of them send.
func TestBothReadingsOfASecretVerify(t *testing.T) {
	t.Parallel()
	const body, encoded = `{"type":"payment.succeeded"}`, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	official := check.Value(standardwebhooks.NewWebhook(encoded))(t)
	decoded := check.Value(base64.StdEncoding.DecodeString(encoded))(t)
	for name, secret := range map[string]string{"as it is": encoded, "with its prefix": "whsec_" + encoded} {
		by := check.Value(NewSignatures([]string{"another secret, as long as ours", secret}))(t)
		for how, sender := range map[string]*standardwebhooks.Webhook{
			"official": official, "decoded": check.Value(standardwebhooks.NewWebhookRaw(decoded))(t),
			"as text": check.Value(standardwebhooks.NewWebhookRaw([]byte(secret)))(t),
		} {
			now := time.Now()
			header := http.Header{}
			header.Set("webhook-id", "msg_1")
			header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
			header.Set("webhook-signature", check.Value(sender.Sign("msg_1", now, []byte(body)))(t))
			_, err := by.Verify(header, []byte(body))
			check.That(t, err == nil, "the secret %s, read %s: %v", name, how, err)
		}
	}
	// The first one still signs as it did.
	plain := signed(t, encoded, time.Unix(1614265330, 0), body)
	check.Equal(t, "signed with the text", plain.Get("webhook-signature"),
		check.Value(check.Value(standardwebhooks.NewWebhookRaw([]byte(encoded)))(t).Sign("msg_1",
			time.Unix(1614265330, 0), []byte(body)))(t))
}

// The headers of Svix are those of the standard under an older name; where both are there, the standard's count.
func TestHeadersOfSvix(t *testing.T) {
	t.Parallel()
	const body = `{"type":"payment.succeeded"}`
	by := check.Value(NewSignatures([]string{newSecret}))(t)
	svix := http.Header{}
	for name, values := range signed(t, newSecret, time.Now(), body) {
		svix.Set(strings.Replace(name, "Webhook-", "Svix-", 1), values[0])
	}
	id := check.Value(by.Verify(svix, []byte(body)))(t)
	check.Equal(t, "its id", id, "msg_1")
	other := svix.Clone()
	other.Set("svix-id", "msg_2")
	check.Is(t, "another id", check.ErrorOf(by.Verify(other, []byte(body))), ErrSignature)
	other = svix.Clone()
	other.Set("webhook-id", "msg_1")
	check.Is(t, "headers of both, mixed", check.ErrorOf(by.Verify(other, []byte(body))), ErrSignature)
	maps.Copy(other, signed(t, newSecret, time.Now(), body))
	check.Must(t, check.ErrorOf(by.Verify(other, []byte(body))))
}

// Who signs well and is late has a clock or a queue to look after, not a secret.
func TestALateWebhookIsToldSo(t *testing.T) {
	t.Parallel()
	const body = `{"type":"payment.succeeded"}`
	by := check.Value(NewSignatures([]string{oldSecret, newSecret}))(t)
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		err := check.ErrorOf(by.Verify(signed(t, newSecret, time.Now().Add(off), body), []byte(body)))
		check.Is(t, "a late one", err, ErrTimestamp)
		check.Is(t, "a late one", err, ErrSignature)
		err = check.ErrorOf(by.Verify(signed(t, "another secret, as long as ours", time.Now().Add(off), body),
			[]byte(body)))
		check.That(t, !errors.Is(err, ErrTimestamp) && errors.Is(err, ErrSignature),
			"a late one of somebody else: %v", err)
	}
}

func TestWebhooksThatAreRefused(t *testing.T) {
	t.Parallel()
	const body = `{"type":"payment.succeeded"}`
	secrets := check.Value(NewSignatures([]string{newSecret, oldSecret}))(t)
	none := check.Value(NewSignatures(nil))(t)
	now := time.Now()
	good := signed(t, newSecret, now, body)
	changed := func(name, value string) http.Header {
		header := good.Clone()
		header.Set(name, value)
		return header
	}
	for name, try := range map[string]struct {
		by     *Signatures
		header http.Header
		body   string
	}{
		"without secrets":         {none, good, body},
		"with another secret":     {secrets, signed(t, "unknown to us, and as long as ours", now, body), body},
		"with another body":       {secrets, good, body + " "},
		"with another id":         {secrets, changed("webhook-id", "msg_2"), body},
		"with another timestamp":  {secrets, changed("webhook-timestamp", strconv.FormatInt(now.Unix()+1, 10)), body},
		"too old":                 {secrets, signed(t, newSecret, now.Add(-5*time.Minute-2*time.Second), body), body},
		"from the future":         {secrets, signed(t, newSecret, now.Add(5*time.Minute+2*time.Second), body), body},
		"without headers":         {secrets, http.Header{}, body},
		"without an id":           {secrets, changed("webhook-id", ""), body},
		"without a signature":     {secrets, changed("webhook-signature", ""), body},
		"with an empty signature": {secrets, changed("webhook-signature", "v1,"), body},
		"of another version":      {secrets, changed("webhook-signature", strings.Replace(good.Get("webhook-signature"), "v1,", "v2,", 1)), body},
		"with a strange time":     {secrets, changed("webhook-timestamp", "yesterday"), body},
		"with a huge time":        {secrets, changed("webhook-timestamp", "9223372036854775807"), body},
	} {
		if _, err := try.by.Verify(try.header, []byte(try.body)); !errors.Is(err, ErrSignature) {
			t.Errorf("a webhook %s: %v", name, err)
		}
	}
	for _, at := range []time.Time{now, now.Add(-4*time.Minute - 50*time.Second), now.Add(4*time.Minute + 50*time.Second)} {
		if _, err := secrets.Verify(signed(t, newSecret, at, body), []byte(body)); err != nil {
			t.Errorf("the control, a webhook of %s: %v", at.Sub(now), err)
		}
	}
}

func TestSecretsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "x", "whsec_eA==", "whsec_", "whsec_===", "whsec_not base64!", strings.Repeat("ab", 20)} {
		_, err := NewSignatures([]string{newSecret, secret})
		check.That(t, err != nil && !strings.Contains(err.Error(), "not base64!"), "%q: %v", secret, err)
	}
	if _, err := check.Value(NewSignatures(nil))(t).Sign("id", time.Now(), nil); err == nil {
		t.Error("something is signed without a secret")
	}
}

// What the page shows to those who write an adapter was computed with Python's hmac.
func TestThePagesExampleOfSecrets(t *testing.T) {
	t.Parallel()
	page := string(check.Value(os.ReadFile("../../deployments/payments.md"))(t))
	rows := regexp.MustCompile("(?m)^\\| `(.+)` \\| `(v1,.+)` \\| `(.+)` \\|$").FindAllStringSubmatch(page, -1)
	check.Equal(t, "examples", len(rows), 2)
	for _, row := range rows {
		header := signed(t, row[1], time.Unix(1700000000, 0), `{"type":"payment.succeeded"}`)
		check.Equal(t, "signature of "+row[1], header.Get("webhook-signature"), row[2])
		check.Equal(t, "key of "+row[1], check.Value(Keys(row[1:2]))(t)[0], row[3])
	}
}

// TestTurningTheWebhookSecret follows the page: in any order of restarts every call and webhook counts.
func TestTurningTheWebhookSecret(t *testing.T) {
	t.Parallel()
	page := string(check.Value(os.ReadFile("../../deployments/changes.md"))(t))
	sides := [][]string{{oldSecret}, {oldSecret}, {oldSecret}} // two instances, and the adapter
	const adapter = 2
	rolls := regexp.MustCompile("`SECKILL_WEBHOOK_SECRETS=(.+)`").FindAllStringSubmatch(page, -1)
	check.Equal(t, "rolls", len(rolls), 3)
	for roll, step := range rolls {
		listed := strings.Split(strings.NewReplacer("old", oldSecret, "new", newSecret).Replace(step[1]), ",")
		for n := range sides {
			sides[(n+roll)%len(sides)] = listed // each time another one is the first
			by := check.Value(NewSignatures(sides[adapter]))(t)
			taken := check.Value(Keys(sides[adapter]))(t)
			for instance, secrets := range sides[:adapter] {
				call := &http.Request{Header: http.Header{"Authorization": {"Bearer " +
					check.Value(Keys(secrets))(t)[0]}}}
				check.Equal(t, fmt.Sprintf("roll %d: a call of instance %d", roll+1, instance), authorized(call, taken),
					true)
				_, err := check.Value(NewSignatures(secrets))(t).Verify(check.Value(by.Sign("msg_1", time.Now(),
					nil))(t), nil)
				check.Must(t, err)
			}
		}
	}
}

func FuzzVerify(f *testing.F) {
	const body = `{"type":"payment.succeeded"}`
	secrets := check.Value(NewSignatures([]string{newSecret}))(f)
	good := signed(f, newSecret, time.Now(), body)
	f.Add("msg_1", good.Get("webhook-timestamp"), "v1,x v1 ,, v1,", []byte(body))
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		header := http.Header{}
		header.Set("webhook-id", id)
		header.Set("webhook-timestamp", timestamp)
		header.Set("webhook-signature", signature)
		if _, err := secrets.Verify(header, body); !errors.Is(err, ErrSignature) &&
			!bytes.Contains([]byte(signature), []byte("v1,")) {
			t.Errorf("%q %q %q: %v", id, timestamp, signature, err)
		}
	})
}

// A provider tells one buyer from another, at every instance and after every start, and learns of none who it is.
func TestNamesOfBuyers(t *testing.T) {
	t.Parallel()
	const secret = "a key of codes in tests, 32 bytes or more"
	here, there := check.Value(Buyers(secret))(t), check.Value(Buyers(secret))(t)
	foreign := check.Value(Buyers(secret + "!"))(t)
	name := here("42")
	check.Equal(t, "the name at another instance", there("42"), name)
	check.That(t, len(name) == 43, "the name is %q", name)
	if other := here("43"); other == name {
		t.Error("two buyers have one name")
	}
	check.That(t, foreign("42") != name, "the name does not depend on the secret")
}

// The limits of a client, for tests.
const (
	CallTimeout = callTimeout
	MaxStarts   = maxStarts
)

// Through has a client's connections go through a network of the test.
func (c *Client) Through(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	if t, ok := c.http.Transport.(*http.Transport); ok {
		t.DialContext = dial
	}
}

// Watch shows a client's requests to a test on their way out.
func (c *Client) Watch(see func(*http.Request)) { c.http.Transport = watched{c.http.Transport, see} }

type watched struct {
	http.RoundTripper

	see func(*http.Request)
}

func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	w.see(r)
	return w.RoundTripper.RoundTrip(r)
}

func (w watched) CloseIdleConnections() {
	if t, ok := w.RoundTripper.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}
