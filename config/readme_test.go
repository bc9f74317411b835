package config_test

import (
	"os"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/workshop/check"
)

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
