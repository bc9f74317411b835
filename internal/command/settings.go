package command

import (
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"seckill/config"
)

// settingFlags gives a command the flags of the named settings, or of all that
// are no secrets when none is named, and returns how to read what they say.
func settingFlags(cmd *cobra.Command, variables ...string) func() map[string]string {
	values := make(map[string]*string)
	for _, s := range config.Table() {
		if s.Flag == "" || len(variables) > 0 && !slices.Contains(variables, s.Variable) {
			continue
		}
		// A word in backquotes would be taken for the name of the value.
		meaning := strings.ReplaceAll(s.Meaning+" ["+s.Variable+"] (default "+s.Default+")", "`", "")
		values[s.Variable] = cmd.Flags().String(s.Flag, "", meaning)
	}
	return func() map[string]string {
		set := make(map[string]string, len(values))
		for variable, value := range values {
			set[variable] = *value
		}
		return set
	}
}

// newLogger writes records to a stream in the format of the settings.
func newLogger(cfg config.Config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel}
	format := cfg.LogFormat
	if format == "" {
		format = "json"
		if onTerminal(w) {
			format = "text"
		}
	}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
