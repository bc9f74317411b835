package parts

import (
	"context"
	"errors"
	"testing"

	"seckill/internal/workshop/check"
)

// A part that does not close well is named in the log, and keeps no other from being closed.
func TestErrorsOfClosingAreLogged(t *testing.T) {
	t.Parallel()
	var log check.Log
	p := New(log.Logger())
	var closed []string
	for _, name := range []string{"database", "Redis client", "queue"} {
		p.OnClose(name, func(context.Context) error {
			closed = append(closed, name)
			return errors.New(name + " has gone away")
		})
	}
	p.Background("consumer", check.Deadline, func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("consumer has gone away")
	})
	p.Close(t.Context(), check.Deadline)
	check.Equal(t, "closed parts", len(closed), 3)
	for _, name := range append(closed, "consumer") {
		check.That(t, log.Has("level=WARN", "did not close well", name, name+" has gone away"),
			"of %s the log says: %s", name, &log)
	}
}
