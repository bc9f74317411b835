package config_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"seckill/config"
	"seckill/internal/redact"
)

// shown is everything that people see of settings: the message of a refusal, or the
// table.
func shown(environ []string) string {
	c, err := config.Load(environ)
	if err != nil {
		return err.Error()
	}
	var all strings.Builder
	for _, s := range c.Settings() {
		if s.Secret {
			all.WriteString(s.Variable + " " + s.Value + "\n")
		}
	}
	return all.String()
}

// examples are the texts that are shown whatever the secrets are: the defaults, and what
// a refusal says of the right form.
func examples() string {
	text := shown(nil)
	for _, wrong := range []string{"x", "redis://:1/x@a", "mysql://a", "a/", "nats://a:1,,"} {
		for _, variable := range []string{"SECKILL_DATABASE_DSN=", "SECKILL_REDIS_URL=", "SECKILL_NATS_URL=", "SECKILL_LOCK_REDIS_URLS="} {
			text += shown([]string{variable + wrong})
		}
	}
	return text
}

// unseen demands that a secret is in no output, nor in an error that quotes the setting
// and went through the redaction. A text that is there with another secret too, for
// example as the name of the database, is none.
func unseen(t *testing.T, environ []string, setting, secret string) {
	t.Helper()
	const least = 8 // shorter ones are not looked for, and may stand in any text by chance
	if len(secret) < least || strings.Contains(examples(), secret) {
		return
	}
	others := make([]string, len(environ))
	for i, entry := range environ {
		others[i] = withAnother(entry, secret)
	}
	if strings.Contains(shown(others)+"quoted "+withAnother(setting, secret), secret) {
		return
	}
	if text := shown(environ); strings.Contains(text, secret) {
		t.Errorf("of %q the secret %q is shown: %s", setting, secret, text)
	}
	if text := redact.New(config.Secrets(environ)...).Text("quoted " + setting + " and " + secret); strings.Contains(text, secret) {
		t.Errorf("of %q the secret %q is left in a quotation: %s", setting, secret, text)
	}
}

// withAnother is a text with another secret in the place of one.
func withAnother(text, secret string) string {
	forms := redact.Forms(secret)
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	for _, form := range forms {
		if strings.Contains(text, form) {
			return strings.Replace(text, form, "another1", 1)
		}
	}
	return text
}

// What the drivers take for a password is shown nowhere, whatever the DSN looks like.
func FuzzDatabaseDSN(f *testing.F) {
	for _, seed := range []string{
		"root:password1@tcp(db:3306)/shop", "root:p@ss/word1@tcp(db:3306)/shop?tls=true", "root:password1@/shop",
		"root:p@ssword/word1", "root:password1@tcp(word@db:3306)/shop", "root:password1@tcp(db:3306)/shop?x=a/b",
		"mysql://root:password1@db/shop", "root:password1@unix(/run/a@b.sock)/shop", "root:pass\nword1@tcp(db)/shop",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		environ := []string{"SECKILL_DATABASE_DSN=" + text, "SECKILL_JWT_SECRET=" + secret}
		if cfg, err := mysql.ParseDSN(text); err == nil {
			unseen(t, environ, text, cfg.Passwd)
		}
		// As a person reads it who put the password into a form.
		filled := "root:" + text + "@tcp(db:3306)/shop"
		unseen(t, []string{"SECKILL_DATABASE_DSN=" + filled, "SECKILL_JWT_SECRET=" + secret}, filled, text)
	})
}

// The same of URLs; a list of them has commas.
func FuzzServerURLs(f *testing.F) {
	for _, seed := range []string{
		"redis://:password1@host:6379/0", "redis://app:pass%2Fword1@host:6379", "redis://:12345/password1@host:1/0",
		"nats://token-of-nats@host:4222", "nats://user:12345?password1@host:4222", "nats://user:12345#password1@host:4222",
		"redis://:pass,word1@host:1,redis://:password2@b:1", "redis://:pass word1@host:1", "rediss://[::1]:6379/0?password=password1",
		"nats://user:pass@word1@host:4222", "redis://:%zzpassword1@host:1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, variable := range []string{"SECKILL_REDIS_URL=", "SECKILL_NATS_URL=", "SECKILL_LOCK_REDIS_URLS="} {
			environ := []string{variable + text}
			if options, err := redis.ParseURL(text); err == nil {
				unseen(t, environ, text, options.Password)
			}
			if u, err := url.Parse(text); err == nil && u.User != nil {
				password, has := u.User.Password()
				if !has {
					password = u.User.Username()
				}
				unseen(t, environ, text, password)
			}
			for _, form := range []string{"redis://:" + text + "@host:6379/0", "nats://" + url.UserPassword("user", text).String() + "@host:4222"} {
				unseen(t, []string{variable + form}, form, text)
			}
		}
	})
}
