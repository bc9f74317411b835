package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/workshop/check"
)

func TestSettingsShowNoSecret(t *testing.T) {
	t.Parallel()
	c := load(t,
		"SECKILL_DATABASE_DSN=root:hun:ter2@/x@tcp(127.0.0.1:3306)/shop?connectionAttributes=hunter2",
		"SECKILL_REDIS_URL=rediss://app:hunter2@a:1/0?skip_verify=on,rediss://app:hunter2@b:2?skip_verify=on",
		"SECKILL_LOCK_REDIS_URLS=rediss://hunter2@c:3",
		"SECKILL_NATS_URL=nats://hunter2@d:4222",
		"SECKILL_JWT_SECRET=new="+secret+"hunter2,old=hunter2"+secret)
	shown := map[string]string{}
	for _, s := range c.Settings() {
		shown[s.Variable] = s.Value
		if s.Unit == "" || s.Meaning == "" || s.Default == "" || s.Value == "" || s.Source == "" {
			t.Errorf("a cell is empty: %+v", s)
		}
		if s.Secret == (s.Flag != "") {
			t.Errorf("%s: secret %v and flag %q", s.Variable, s.Secret, s.Flag)
		}
	}
	for variable, want := range map[string]string{
		"SECKILL_DATABASE_DSN":    "root:***@tcp(127.0.0.1:3306)/shop",
		"SECKILL_REDIS_URL":       "rediss://app:***@a:1/0,rediss://app:***@b:2",
		"SECKILL_LOCK_REDIS_URLS": "rediss://***@c:3",
		"SECKILL_NATS_URL":        "nats://***@d:4222",
		"SECKILL_JWT_SECRET":      "new=***,old=***",
		"SECKILL_HTTP_ADDR":       ":8080",
		"SECKILL_WEBHOOK_SECRETS": "none: webhooks are refused",
	} {
		check.Equal(t, "what is shown of "+variable, shown[variable], want)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("started", slog.Any("config", c))
	keys := check.Value(json.Marshal(fmt.Sprint(c.JWTKeys)))(t)
	everything := fmt.Sprintf("%v %+v %#v %v %+v %#v %s %s", c, c, c, c.JWTKeys, c.JWTKeys, c.JWTKeys, log.String(), keys)
	if strings.Contains(everything, "hunter2") || strings.Contains(everything, secret) {
		t.Errorf("a secret is shown: %s", everything)
	}
}

func TestMarkdownHasEverySetting(t *testing.T) {
	t.Parallel()
	text := config.Markdown()
	for _, s := range config.Table() {
		if !strings.Contains(text, "`"+s.Variable+"`") {
			t.Errorf("%s is missing", s.Variable)
		}
	}
	for line := range strings.Lines(text) {
		if strings.Count(line, "|")-strings.Count(line, `\|`) != 5 {
			t.Errorf("not four columns: %s", line)
		}
	}
}

// README.md holds config.Markdown. To bring it up to date, put what this test prints between its two comments.
func TestREADMEShowsTheSettings(t *testing.T) {
	t.Parallel()
	readme := check.Value(os.ReadFile("README.md"))(t)
	_, rest, begins := strings.Cut(string(readme), "<!-- settings: config.Markdown writes this table, a test compares -->\n")
	table, _, ends := strings.Cut(rest, "<!-- end of settings -->")
	if !begins || !ends {
		t.Fatal("README.md has no table of settings")
	}
	if want := config.Markdown(); table != want {
		t.Errorf("the table of settings in README.md is not\n%s", want)
	}
}
