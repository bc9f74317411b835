package config_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"seckill/config"
	"seckill/internal/redact"
)

// shown is everything that people see of settings: the message of a refusal, or the table.
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

// examples are the texts shown whatever the secrets are: the defaults, and what a refusal says of the right form.
func examples() string {
	text := shown(nil)
	for _, wrong := range []string{"x", "redis://:1/x@a", "mysql://a", "a/", "nats://a:1,,"} {
		for _, variable := range []string{"SECKILL_DATABASE_DSN=", "SECKILL_REDIS_URL=", "SECKILL_NATS_URL=", "SECKILL_LOCK_REDIS_URLS="} {
			text += shown([]string{variable + wrong})
		}
	}
	return text
}

// unseen demands that no output or redacted error has a secret. A text that is there with another secret too may stay.
func unseen(t *testing.T, environ []string, setting, secret string) {
	t.Helper()
	const least = 8 // shorter ones are not looked for, and may stand in any text by chance
	if len(secret) < least {
		return
	}
	others := make([]string, len(environ))
	for i, entry := range environ {
		others[i] = withAnother(entry, secret)
	}
	text, always := shown(environ), shown(others)+examples()+"quoted "+withAnother(setting, secret)
	for i := range len(secret) - least + 1 {
		if piece := secret[i : i+least]; strings.Contains(text, piece) && !strings.Contains(always, piece) {
			t.Errorf("of %q the piece %q of the secret is shown: %s", setting, piece, text)
		}
	}
	if strings.Contains(always, secret) {
		return
	}
	if text := redact.New(config.Secrets(environ)...).Text("quoted " + setting + " and " +
		secret); strings.Contains(text, secret) {
		t.Errorf("of %q the secret %q is left in a quotation: %s", setting, secret, text)
	}
}

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

// What the driver takes for a password is shown nowhere, nor a piece of what a person does in a DSN it cannot read.
func FuzzDatabaseDSN(f *testing.F) {
	for _, seed := range [][2]string{
		{"password1", "@tcp(db:3306)/shop"},
		{"p@ss/word1", "@tcp(db:3306)/shop?tls=true"},
		{"password1", "@/shop"},
		{"pa@ssword/word1", ""},
		{"password1", "@tcp(db:3306)"},
		{"password1@tcp(word1word1", "@db:3306)/shop"},
		{"password1", "@tcp(db:3306)/shop?x=a/b"},
		{"password1?x=password2/b", "@tcp(db:3306)"},
		{"pass\nword1", "@tcp(db)/shop"},
		{"password1", "@unix(/run/a@b.sock)/shop"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, password, rest string) {
		text := "root:" + password + rest
		if cfg, err := mysql.ParseDSN(text); err == nil {
			password = cfg.Passwd
		} else if rest != "" && !strings.HasPrefix(rest, "@") {
			return // a person would see more of a password in it
		}
		unseen(t, []string{"SECKILL_DATABASE_DSN=" + text, "SECKILL_JWT_SECRET=" + secret}, text, password)
	})
}

// The same of URLs, of which there may be a list.
func FuzzServerURLs(f *testing.F) {
	for _, seed := range [][2]string{
		{"redis://:password1", "@host:6379/0"},
		{"redis://app:pass%2Fword1", "@host:6379"},
		{"redis://:12345/password1", "@host:1/0"},
		{"nats://token-of-nats", "@host:4222"},
		{"nats://user:12345?password1", "@host:4222"},
		{"nats://user:12345#password1", "@host:4222"},
		{"redis://:pass,word1", "@host:1,redis://:password2@b:1"},
		{"redis://:,0000://password1:0000", "@host:6379/0"},
		{"redis://:pass word1", "@host:1"},
		{"nats://user:pass@word1", "@host:4222"},
		{"redis://:%zzpassword1", "@host:1"},
		{"//password1", "@"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, begin, rest string) {
		text := begin + rest
		_, userinfo, _ := strings.Cut(begin, "//")
		_, password, has := strings.Cut(userinfo, ":")
		if !has {
			password = userinfo
		}
		if u, err := url.Parse(text); err == nil && u.User != nil { // the parser's own reading
			if password, has = u.User.Password(); !has {
				password = u.User.Username()
			}
		} else if !strings.HasPrefix(rest, "@") {
			return // a person would see no password in it
		}
		for _, variable := range []string{"SECKILL_REDIS_URL=", "SECKILL_NATS_URL=", "SECKILL_LOCK_REDIS_URLS="} {
			unseen(t, []string{variable + text}, text, password)
		}
	})
}
