package payment

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

const (
	oldSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret = "a plain secret of the provider"
)

// signed is a webhook as a provider sends it.
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
		check.Must(t, both.Verify(signed(t, secret, time.Now(), body), []byte(body)))
	}
	// The same bytes, written the other way, and without padding.
	encoded := "whsec_" + base64.StdEncoding.EncodeToString([]byte(newSecret))
	check.Must(t, both.Verify(signed(t, encoded, time.Now(), body), []byte(body)))
	check.Must(t, both.Verify(signed(t, strings.TrimRight(encoded, "="), time.Now(), body), []byte(body)))
	// A provider that replaces its secret signs with both.
	header := signed(t, "unknown to us", time.Now(), body)
	header.Set("webhook-signature", header.Get("webhook-signature")+" v1a,AAAA "+signed(t, oldSecret, time.Now(), body).Get("webhook-signature"))
	check.Must(t, both.Verify(header, []byte(body)))
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
		"with another secret":     {secrets, signed(t, "unknown to us", now, body), body},
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
		if err := try.by.Verify(try.header, []byte(try.body)); !errors.Is(err, ErrSignature) {
			t.Errorf("a webhook %s: %v", name, err)
		}
	}
	for _, at := range []time.Time{now, now.Add(-4*time.Minute - 50*time.Second), now.Add(4*time.Minute + 50*time.Second)} {
		if err := secrets.Verify(signed(t, newSecret, at, body), []byte(body)); err != nil {
			t.Errorf("the control, a webhook of %s: %v", at.Sub(now), err)
		}
	}
}

func TestSecretsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "whsec_", "whsec_===", "whsec_not base64!"} {
		_, err := NewSignatures([]string{newSecret, secret})
		if err == nil || strings.Contains(err.Error(), "not base64!") {
			t.Errorf("%q: %v", secret, err)
		}
	}
	if _, err := check.Value(NewSignatures(nil))(t).Sign("id", time.Now(), nil); err == nil {
		t.Error("something is signed without a secret")
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
		if err := secrets.Verify(header, body); !errors.Is(err, ErrSignature) && !bytes.Contains([]byte(signature), []byte("v1,")) {
			t.Errorf("%q %q %q: %v", id, timestamp, signature, err)
		}
	})
}
