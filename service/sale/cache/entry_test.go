package cache

import (
	"errors"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// The sale runs from begin to end on the database's clock; the copy was asked for at `asked` and told 20 ms later on
// this machine's clock, which is an hour off.
func TestRefusalCarriesTheDatabasesClockOn(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 11, 10, 0, 0, 0, time.UTC)
	end := begin.Add(time.Minute)
	const roundTrip = 20 * time.Millisecond

	const anEntry model.Code = "ENTRY"
	for name, tt := range map[string]struct {
		state    model.VoucherState
		database time.Time     // its clock when it read the voucher
		later    time.Duration // since the copy was told
		want     model.Code    // empty: ask the database
		groups   string        // of the voucher: "staff", or early "gold"; "draw": it is drawn, and closed in Redis
	}{
		"well before":              {model.VoucherPublished, begin.Add(-time.Hour), 0, model.CodeNotStarted, ""},
		"just before":              {model.VoucherPublished, begin.Add(-21 * time.Millisecond), 0, model.CodeNotStarted, ""},
		"at the opening edge":      {model.VoucherPublished, begin.Add(-10 * time.Millisecond), 0, "", ""},
		"open":                     {model.VoucherPublished, begin.Add(time.Second), 0, "", ""},
		"opened since the reading": {model.VoucherPublished, begin.Add(-100 * time.Millisecond), 200 * time.Millisecond, "", ""},
		"at the closing edge":      {model.VoucherPublished, end.Add(-10 * time.Millisecond), 0, "", ""},
		"at the end":               {model.VoucherPublished, end, 0, model.CodeEnded, ""},
		"ended since the reading":  {model.VoucherPublished, end.Add(-100 * time.Millisecond), 200 * time.Millisecond, model.CodeEnded, ""},
		"paused":                   {model.VoucherPaused, begin.Add(time.Second), 0, model.CodePaused, ""},
		"paused before the begin":  {model.VoucherPaused, begin.Add(-time.Hour), 0, model.CodePaused, ""},
		"paused at the end's edge": {model.VoucherPaused, end.Add(-10 * time.Millisecond), 0, "", ""},
		"paused after the end":     {model.VoucherPaused, end.Add(time.Hour), 0, model.CodeEnded, ""},
		"draft":                    {model.VoucherDraft, begin.Add(time.Second), 0, model.CodeNotFound, ""},
		"archived":                 {model.VoucherArchived, end.Add(time.Hour), 0, model.CodeNotFound, ""},
		"not for gold":             {model.VoucherPublished, begin.Add(time.Second), 0, model.CodeNotEligible, "staff"},
		"not for gold, ended":      {model.VoucherPublished, end, 0, model.CodeNotEligible, "staff"},
		"not for gold, paused":     {model.VoucherPaused, begin.Add(-time.Hour), 0, model.CodeNotEligible, "staff"},
		"not for gold, a draft":    {model.VoucherDraft, begin, 0, model.CodeNotFound, "staff"},
		"early":                    {model.VoucherPublished, begin.Add(-time.Minute + time.Second), 0, "", "gold"},
		"early, at the edge":       {model.VoucherPublished, begin.Add(-time.Minute - 10*time.Millisecond), 0, "", "gold"},
		"before it is early":       {model.VoucherPublished, begin.Add(-time.Minute - time.Second), 0, model.CodeNotStarted, "gold"},
		"drawn":                    {model.VoucherPublished, begin.Add(time.Second), 0, anEntry, "draw"},
		"drawn, at the end's edge": {model.VoucherPublished, end.Add(-10 * time.Millisecond), 0, anEntry, "draw"},
		"drawn, ended":             {model.VoucherPublished, end, 0, model.CodeEnded, "draw"},
		"drawn, paused":            {model.VoucherPaused, begin.Add(time.Second), 0, model.CodePaused, "draw"},
		"early for others":         {model.VoucherPublished, begin.Add(-time.Second), 0, model.CodeNotStarted, "early for staff"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := time.Now()
			held := &entry{
				asked: asked, told: asked.Add(roundTrip),
				voucher: model.Voucher{
					VoucherFields: model.VoucherFields{State: tt.state, BeginAt: begin, EndAt: end, Stock: 1, Remaining: 1},
					VoucherView:   model.VoucherView{ServerTime: tt.database},
				},
			}
			switch tt.groups {
			case "staff":
				held.voucher.Groups = model.Groups{"staff"}
			case "draw":
				held.voucher.Allocation, held.voucher.Remaining, held.closed = model.ByDraw, 0, true
			case "gold", "early for staff":
				held.voucher.Early = model.Early{For: model.Groups{strings.TrimPrefix(tt.groups, "early for ")}, From: new(begin.Add(-time.Minute))}
			}
			err := held.refusal("anybody", held.told.Add(tt.later), "gold")
			if tt.want == anEntry {
				check.Is(t, "it is an entry", err, model.ErrEntry)
				return
			}
			if tt.want == "" {
				if err != nil {
					t.Fatalf("refused with %v, want to ask the database", err)
				}
				return
			}
			if got := model.CodeOf(err); err == nil || got != tt.want {
				t.Fatalf("got %v, want %s", err, tt.want)
			}
			if refused, ok := errors.AsType[*model.Error](err); ok && tt.want == model.CodeNotStarted && refused.RetryAfter <= 0 {
				t.Errorf("NOT_STARTED without a time to come again: %+v", refused)
			}
		})
	}
}
