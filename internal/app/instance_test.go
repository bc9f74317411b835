package app

import (
	"context"
	"errors"
	"testing"

	"seckill/config"
	"seckill/internal/workshop/check"
)

// A part that does not close well is named in the log, and keeps no other from being closed. What ends an instance badly
// comes over Failed, and not from a stop.
func TestErrorsOfClosingAreLogged(t *testing.T) {
	t.Parallel()
	var log check.Log
	i := newInstance(config.Config{}, log.Logger())
	var closed []string
	for _, name := range []string{"database", "Redis client", "queue"} {
		i.onClose(name, func(context.Context) error {
			closed = append(closed, name)
			return errors.New(name + " has gone away")
		})
	}
	i.background("consumer", lookPatience, func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("consumer has gone away")
	})
	i.close(t.Context())
	check.Equal(t, "closed parts", len(closed), 3)
	for _, name := range append(closed, "consumer") {
		check.That(t, log.Has("level=WARN", "did not close well", name, name+" has gone away"), "of %s the log says: %s", name, &log)
	}
	check.Equal(t, "failures", len(i.Failed()), 0)
}
