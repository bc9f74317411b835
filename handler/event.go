package handler

import (
	"context"
	"net/http"
	"time"

	"seckill/model"
)

// EventReplay says what receivers of events get again.
type EventReplay struct {
	Since time.Time `json:"since" doc:"What happened since then is sent again, with the same ids."`
	URL   string    `json:"url,omitempty" maxLength:"512" doc:"Only to this receiver; absent: to all."`
}

func (a *api) eventRoutes() {
	answer(a, route{
		id: "list-receivers", call: "GET /admin/events/receivers", tag: tagAdmin, access: administrators,
		summary: "List the receivers of events over HTTPS",
		description: "What each of SECKILL_EVENTS_URLS has got, what waits for it (10000 stands for more), and what it answered last. " +
			"One that answered 410 is stopped.",
	}, func(ctx context.Context, _ *struct{}) (model.EventReceivers, error) { return a.options.Receivers(ctx) })
	answer(a, route{
		id: "replay-events", call: "POST /admin/events/replay", tag: tagAdmin, access: administrators,
		status: http.StatusAccepted, summary: "Send events to their receivers again",
		description: "Those of the last week are kept. Also restarts a receiver that had stopped, and has one that failed tried at once. " +
			"What is still to be sent comes as it would have.",
	}, func(ctx context.Context, in *sent[EventReplay]) (list model.EventReceivers, err error) {
		if err := a.options.ReplayEvents(ctx, subject(ctx), in.Body.Since, in.Body.URL); err != nil {
			return list, err
		}
		return a.options.Receivers(ctx)
	})
}
