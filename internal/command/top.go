package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"seckill/config"
	"seckill/internal/api"
	"seckill/internal/poll"
)

const (
	// readTimeout bounds one reading: the server asks its dependencies for it, for a second at the most.
	readTimeout = 5 * time.Second
	// leastInterval: a rate over less is noise, and each reading costs the server some milliseconds.
	leastInterval = 100 * time.Millisecond

	// What a terminal is told (ECMA-48, and xterm's second screen).
	secondScreen, firstScreen = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l" // without and with a cursor
	fromTheTop, restOfLine    = "\x1b[H", "\x1b[K"
	restOfScreen              = "\x1b[J"
)

// top is what `seckill top` was asked for.
type top struct {
	url      string
	interval time.Duration
	count    int // of views; 0: until it is interrupted
}

func (p Process) topCommand() *cobra.Command {
	var t top
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a running server: rates, latencies, backlog, locks",
		Long: "It reads the metrics of one instance at its operations listener and shows what happened between two\n" +
			"readings: on a terminal as a view that is drawn anew, elsewhere as one line each. Ctrl-C ends it. What a\n" +
			"number means is in deployments/prometheus/metrics.md.",
		Example: "  seckill top\n  seckill top --url http://seckill-1:8081 --interval 5s\n  seckill top --count 10 > rush.log",
		Args:    noArgs,
	}
	load := p.settings(cmd, "SECKILL_OPS_ADDR")
	cmd.Flags().StringVar(&t.url, "url", "", "base URL of the operations listener (default: that of SECKILL_OPS_ADDR on this machine)")
	cmd.Flags().DurationVar(&t.interval, "interval", time.Second, "time between two readings")
	cmd.Flags().IntVar(&t.count, "count", 0, "end after so many views; 0: when interrupted")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if t.interval < leastInterval {
			return misused("--interval is %s, and at least %s", t.interval, leastInterval)
		}
		if t.count < 0 {
			return misused("--count is %d, and at least 0", t.count)
		}
		if t.url == "" {
			cfg, err := load(config.WithoutTokens())
			if err != nil {
				return err
			}
			t.url = reachable(cfg.OpsAddr)
		}
		if u, err := url.Parse(t.url); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return misused("--url is not a URL such as http://127.0.0.1:8081")
		}
		return p.top(cmd.Context(), t)
	}
	return cmd
}

// reachable is the URL of a listener on this machine.
func reachable(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// top shows one view after the other. A server that is away for a while, because it is
// restarted for example, is waited for; the first reading must succeed.
func (p Process) top(ctx context.Context, t top) error {
	client := &http.Client{Transport: api.Transport(1), Timeout: readTimeout}
	defer client.CloseIdleConnections()
	last, err := read(ctx, client, t.url)
	if err != nil {
		return fmt.Errorf("read the metrics of %s: %w", t.url, err)
	}
	show, restore := p.screen(t.url)
	defer restore()
	for shown := 0; t.count == 0 || shown < t.count; shown++ {
		poll.Pause(ctx, t.interval)
		if ctx.Err() != nil {
			return ended(ctx, t)
		}
		next, err := read(ctx, client, t.url)
		switch {
		case ctx.Err() != nil:
			return ended(ctx, t)
		case err != nil:
			show([]row{{"away", cmp.Or(errors.Unwrap(err), err).Error()}})
		default:
			show(compare(last, next))
			last = next
		}
	}
	return nil
}

// ended: without a count, an interruption is how it is meant to end.
func ended(ctx context.Context, t top) error {
	if t.count == 0 {
		return nil
	}
	return ctx.Err()
}

// screen returns how a view is shown, and what is to be done in the end.
func (p Process) screen(title string) (show func([]row), restore func()) {
	if !onTerminal(p.Stdout) {
		return func(rows []row) { fmt.Fprintln(p.Stdout, line(time.Now(), rows)) }, func() {}
	}
	size := func() (width, height int) {
		file, _ := p.Stdout.(interface{ Fd() uintptr })
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return 80, 24
		}
		return width, height
	}
	fmt.Fprint(p.Stdout, secondScreen)
	show = func(rows []row) {
		width, height := size()
		fmt.Fprint(p.Stdout, paint(append([]row{{"seckill", title + "  " + time.Now().Format(time.TimeOnly)}}, rows...), width, height))
	}
	return show, func() { fmt.Fprint(p.Stdout, firstScreen) }
}

// row is one topic of a view.
type row struct{ topic, text string }

// line is a view without a terminal.
func line(at time.Time, rows []row) string {
	parts := []string{at.UTC().Format(time.RFC3339)}
	for _, r := range rows {
		parts = append(parts, r.topic+": "+r.text)
	}
	return strings.Join(parts, " | ")
}

// paint is a view for a terminal of that size, in place of the one before it.
func paint(rows []row, width, height int) string {
	var screen strings.Builder
	screen.WriteString(fromTheTop)
	for _, r := range rows[:min(len(rows), max(height-1, 0))] {
		text := []rune(fmt.Sprintf("%-9s %s", r.topic, r.text))
		screen.WriteString(string(text[:min(len(text), width)]) + restOfLine + "\r\n")
	}
	screen.WriteString(restOfScreen)
	return screen.String()
}
