package command

import (
	"context"
	"log/slog"
	"time"
)

// background runs something for the life of the instance. The stop ends it and
// has so much patience; what then still runs is abandoned with the process.
func (i *Instance) background(name string, patience time.Duration, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	i.onClose(name, func(ctx context.Context) error {
		cancel()
		patient, enough := context.WithTimeout(ctx, patience)
		defer enough()
		select {
		case err := <-done:
			return err
		case <-patient.Done():
			i.log.WarnContext(ctx, "left behind at the stop", slog.String("part", name))
			return nil
		}
	})
}
