package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/internal/app"
)

func (p Process) eventsCommand() *cobra.Command {
	var since, url string
	replay := &cobra.Command{
		Use:   "replay --since TIME",
		Short: "Send what happened since a time to the receivers of events again",
		Long: "Has the receivers of SECKILL_EVENTS_URLS get the events since a time again, with the same ids. Events are kept\n" +
			"for a week. A receiver that had stopped goes on, and one that failed is tried at once.",
	}
	replay.Flags().StringVar(&since, "since", "", "a time such as 2026-11-29T23:00:00Z")
	replay.Flags().StringVar(&url, "url", "", "only to this receiver")
	p.onSettings(replay, func(ctx context.Context, cfg config.Config, _ []string) error {
		at, err := time.Parse(time.RFC3339, since)
		if err != nil {
			return misused("--since is no time such as 2026-11-29T23:00:00Z")
		}
		return p.lookInto(ctx, cfg, func(db *app.Database) error {
			if err := db.Events.Replay(ctx, noAdmin, at, url); err != nil {
				return err
			}
			return p.say("events since %s are sent again\n", at.Format(time.RFC3339))
		})
	})
	return group("events", "Look after the receivers of events", "", replay)
}
