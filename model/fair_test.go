package model_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestWhoMayBuyAndWhen steps through the groups of a user and the edges of the two beginnings.
func TestWhoMayBuyAndWhen(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 11, 10, 0, 0, 0, time.UTC)
	early := model.Early{For: model.Groups{"gold"}, From: new(begin.Add(-time.Hour))}
	for name, test := range map[string]struct {
		groups   model.Groups
		early    model.Early
		of       []string
		at       time.Time
		eligible bool
		phase    model.Phase
	}{
		"everybody":                 {at: begin, eligible: true, phase: model.PhaseLive},
		"nobody's group":            {groups: model.Groups{"staff"}, at: begin, phase: model.PhaseLive},
		"another group":             {groups: model.Groups{"staff"}, of: []string{"Staff", "staff ", ""}, at: begin, phase: model.PhaseLive},
		"one of two":                {groups: model.Groups{"staff", "gold"}, of: []string{"x", "gold"}, at: begin, eligible: true, phase: model.PhaseLive},
		"early":                     {early: early, of: []string{"gold"}, at: begin.Add(-time.Hour), eligible: true, phase: model.PhaseLive},
		"too early":                 {early: early, of: []string{"gold"}, at: begin.Add(-time.Hour - 1), eligible: true, phase: model.PhaseUpcoming},
		"not early":                 {early: early, of: []string{"staff"}, at: begin.Add(-1), eligible: true, phase: model.PhaseUpcoming},
		"early, not for that group": {groups: model.Groups{"staff"}, early: early, of: []string{"gold"}, at: begin.Add(-1), phase: model.PhaseLive},
		"with the others":           {early: early, at: begin, eligible: true, phase: model.PhaseLive},
	} {
		v := model.Voucher{
			VoucherFields: model.VoucherFields{
				State: model.VoucherPublished, Remaining: 1, BeginAt: begin, EndAt: begin.Add(time.Hour), Groups: test.groups, Early: test.early,
			},
		}.At(test.at)
		shown := v.ShownTo(test.of)
		if *shown.Eligible != test.eligible || shown.Phase != test.phase || !shown.BeginAt.Equal(begin) || v.Eligible != nil {
			t.Errorf("%s: eligible %v in phase %s", name, *shown.Eligible, shown.Phase)
		}
		opened := !test.at.Before(begin) || test.early.From != nil && !test.at.Before(*test.early.From)
		check.Equal(t, name+": the sale is on for anybody", v.OnSale(test.at), opened)
	}
}

// FuzzGroups: what passes the check is stored and read as it is, and names only what it names.
func FuzzGroups(f *testing.F) {
	for _, seed := range []string{"gold", "gold\n/eu/staff", "CN=Gold,OU=Shop", "金", "", " ", "a\na", "\"", "\x00", "\xff", strings.Repeat("x", 129)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		groups := model.Groups(strings.Split(lines, "\n"))
		if groups.Check("body.groups") != nil {
			return
		}
		var read model.Groups
		check.Must(t, read.Scan(check.Value(groups.Value())(t)))
		if !slices.Equal(read, groups) {
			t.Errorf("%q became %q", groups, read)
		}
		for _, name := range groups {
			check.That(t, groups.Any([]string{name}) && !groups.Any([]string{name + "x" + lines}), "%q", name)
		}
	})
}

// TestCooldownDoubles each time, up to a day, and ends on a whole millisecond.
func TestCooldownDoubles(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 11, 10, 0, 0, 1000, time.UTC)
	for _, test := range []struct {
		cooldown time.Duration
		times    int64
		want     time.Duration
	}{
		{time.Second, 0, time.Second},
		{10 * time.Minute, 3, 80 * time.Minute},
		{13 * time.Hour, 1, 24 * time.Hour},
		{time.Second, 1 << 40, 24 * time.Hour},
		{24 * time.Hour, 0, 24 * time.Hour},
	} {
		until := model.CooldownUntil(model.Window(test.cooldown), at, test.times)
		check.Equal(t, test.cooldown.String(), until.Sub(at.Truncate(time.Millisecond)), test.want+time.Millisecond)
	}
	check.Equal(t, "without one", model.CooldownUntil(0, at, 3), (*time.Time)(nil))
	exact := at.Truncate(time.Millisecond)
	check.Equal(t, "at a whole one", *model.CooldownUntil(model.Window(time.Second), exact, 0), exact.Add(time.Second))
}
