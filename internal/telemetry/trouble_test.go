package telemetry

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTrouble(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		every time.Duration // between two tries
		tries string        // x fails, o goes well
		want  string        // what is logged, in the order of the tries: I(nformation) or W(arning)
	}{
		"well":                      {time.Second, "ooo", ""},
		"one failure":               {time.Second, "oxoooo", "Ix Io"},
		"one failure side by side":  {time.Millisecond, "xxxxxoo", "Ix Io"},
		"a second one in a row":     {time.Second, "oxxxxxoo", "Ix Wx Io"},
		"failures that last":        {100 * time.Millisecond, "xxxxxxxxxxo", "Ix Wx Io"},
		"seldom tried":              {time.Hour, "xxxo", "Ix Wx Io"},
		"again and again":           {5 * time.Second, "xoxoxo", "Ix Io Wx Io Wx Io"},
		"a failure now and then":    {time.Minute, "xoxoxo", "Ix Io Ix Io Ix Io"},
		"a moment's with successes": {time.Millisecond, "xoxoxo", "Ix Io"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var text bytes.Buffer
				log := slog.New(slog.NewTextHandler(&text, nil))
				var trouble Trouble
				for _, try := range test.tries {
					var err error
					if try == 'x' {
						err = errors.New("late")
					}
					trouble.Note(t.Context(), log, err, "it fails", "it is well", slog.String("what", "reading"))
					<-time.After(test.every)
				}
				if got := shortened(text.String()); got != test.want {
					t.Errorf("logged %q, want %q:\n%s", got, test.want, text.String())
				}
			})
		})
	}
}

func shortened(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		level, kind := "I", "o"
		if strings.Contains(line, "level=WARN") {
			level = "W"
		}
		if strings.Contains(line, `"it fails"`) && strings.Contains(line, "error=late") {
			kind = "x"
		}
		if strings.Contains(line, "what=reading") {
			lines = append(lines, level+kind)
		}
	}
	return strings.Join(lines, " ")
}
