package redact_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"seckill/internal/redact"
)

func TestServersAreShownAndPasswordsAreNot(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"redis://host:6379/0":                           "redis://host:6379/0",
		"redis://app:pass@host:6379/0?dial_timeout=1s":  "redis://app:***@host:6379/0",
		"rediss://:pass@[::1]:6379":                     "rediss://:***@[::1]:6379",
		"nats://token@a:4222,nats://u:p@b:4222":         "nats://***@a:4222,nats://u:***@b:4222",
		"redis://:pa,ss@host:1":                         "redis://:***@host:1",
		"https://issuer.example":                        "https://issuer.example",
		"redis://:12/ss@host:1/0":                       "***", // the parser takes 12 for a port
		"nats://user:12/ss@host:4222":                   "***",
		"nats://user:12?ss@host:4222":                   "***",
		"nats://user:12#ss@host:4222":                   "***",
		"redis://:pa ss@host:1":                         "***",
		"redis:pass@host":                               "***",
		"pass":                                          "***",
		"":                                              "***",
		"nats://host/seckill":                           "***",
		"nats://a:4222,nats://user:12/ss@b:4222":        "***",
		"nats://user%3Aname:pass@host:4222":             "nats://user%3Aname:***@host:4222",
		"https://issuer.example/keys?token=abcdefghijk": "***",
	} {
		if got := redact.Addresses(text); got != want {
			t.Errorf("Addresses(%q) = %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"root@tcp(db:3306)/shop":                          "root@tcp(db:3306)/shop",
		"root:pass@tcp(db:3306)/shop?tls=true":            "root:***@tcp(db:3306)/shop",
		"root:p@ss:w/rd@tcp(a:3306,b:3306)/shop":          "root:***@tcp(a:3306,b:3306)/shop",
		"root:pass@unix(/run/mysqld/mysqld.sock)/shop":    "root:***@unix(/run/mysqld/mysqld.sock)/shop",
		"root:pass@/shop":                                 "root:***@/shop",
		":pass@tcp([fe80::1%25eth0]:3306)/shop":           ":***@tcp([fe80::1%25eth0]:3306)/shop",
		"root:p@ss/word":                                  "***", // no address: the password's end looks like one
		"root:pass@tcp(db:3306)/shop?x=a/b":               "***", // the driver takes b for the name
		"root:pass@tcp(word@db:3306)/shop":                "***",
		"root:pass@tcp(db:3306)":                          "***",
		"mysql://root:pass@db/shop":                       "***",
		"root:pa\nss@tcp(db:3306)/shop":                   "***",
		"pass":                                            "***",
		"root:tcp(x)/y@tcp(db:3306)/shop?multiple=@tcp(z": "root:***@tcp(db:3306)/shop",
	} {
		if got := redact.DSN(text); got != want {
			t.Errorf("DSN(%q) = %q, want %q", text, got, want)
		}
	}
}

const password = `pä:ss/w@rd %2F "quoted" <&>`

type said struct{ Inside string }

func TestNoRecordHoldsASecret(t *testing.T) {
	t.Parallel()
	secrets := redact.New(password, "short", "another secret")
	link := "redis://:" + url.QueryEscape(password) + "@host:6379"
	_, quoting := url.Parse(fmt.Sprintf("redis://:%s@host:bad", password))
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var out bytes.Buffer
		log := slog.New(secrets.Handler(handler(&out)))
		log.With(slog.String("with", password)).WithGroup("group").Info("message "+password,
			slog.String("text", "x"+password+"x"),
			slog.Any("error", fmt.Errorf("dial %s: %w", link, quoting)),
			slog.Any("struct", said{Inside: password}),
			slog.Any("list", []string{"a", password}),
			slog.Group("inner", slog.Any("deep", errors.New(password))),
			slog.Any(password, 1),
			slog.Int("kept", 4711), slog.String("short", "a short word"), slog.Any("other", said{Inside: "kept too"}))
		for _, form := range redact.Forms(password) {
			if strings.Contains(out.String(), form) {
				t.Errorf("%s: the record holds %q: %s", name, form, out.String())
			}
		}
		for _, kept := range []string{"4711", "a short word", "kept too", "dial redis://:***@host:6379", "message ***"} {
			if !strings.Contains(out.String(), kept) {
				t.Errorf("%s: the record lacks %q: %s", name, kept, out.String())
			}
		}
	}
}

func TestSecretsOfSettings(t *testing.T) {
	t.Parallel()
	secrets := redact.New(append(redact.OfURLs("redis://app:one%20secret@a:1, nats://token-of-nats@b:2,redis://:12345/67890@c:3"),
		redact.OfDSN("root:two@s/ecrets@tcp(db:3306)/shop")...)...)
	for _, text := range []string{"one%20secret", "one secret", "one+secret", "token-of-nats", "12345/67890", "two@s/ecrets"} {
		if got := secrets.Text("<" + text + ">"); got != "<***>" {
			t.Errorf("%q is left: %s", text, got)
		}
	}
	for _, text := range []string{"redis://a:1", "tcp(db:3306)/shop", "app", "shop"} {
		if got := secrets.Text(text); got != text {
			t.Errorf("%q is no secret, and became %q", text, got)
		}
	}
	var none *redact.Secrets
	if none.Text("text") != "text" || (&redact.Secrets{}).Text("text") != "text" {
		t.Error("a Secrets that knows none changes texts")
	}
}
