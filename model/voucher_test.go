package model_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func wrongFields(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	refusal, ok := errors.AsType[*model.Error](err)
	check.Need(t, ok && refusal.Code == model.CodeValidation, "%v is no VALIDATION error", err)
	var places []string
	for _, field := range refusal.Fields {
		places = append(places, field.Location)
	}
	return places
}

func TestNewVoucherIsChecked(t *testing.T) {
	t.Parallel()
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	most := int64(model.MaxAmount)
	for _, test := range []struct {
		spoil func(*model.VoucherFields)
		wrong string
	}{
		{func(*model.VoucherFields) {}, ""},
		{func(v *model.VoucherFields) {
			v.Title, v.Description = strings.Repeat("茶", 200), strings.Repeat("茶", 4000)
		}, ""},
		{func(v *model.VoucherFields) { v.Title = " \u3000" }, "body.title"},
		{func(v *model.VoucherFields) { v.Title = strings.Repeat("茶", 201) }, "body.title"},
		{func(v *model.VoucherFields) { v.Title = "a\nb" }, "body.title"},
		{func(v *model.VoucherFields) { v.Description = strings.Repeat("茶", 4001) }, "body.description"},
		{func(v *model.VoucherFields) { v.Description = "a\r\n\tb" }, ""},
		{func(v *model.VoucherFields) { v.Description = "\x1b[31m" }, "body.description"},
		{func(v *model.VoucherFields) { v.Price, v.FaceValue, v.Stock = most, most, most }, ""},
		{func(v *model.VoucherFields) { v.Price, v.FaceValue, v.Stock = 0, 0, 0 }, ""},
		{func(v *model.VoucherFields) { v.Price = -1 }, "body.price"},
		{func(v *model.VoucherFields) { v.Stock = -1 }, "body.stock"},
		{func(v *model.VoucherFields) { v.EndAt = v.BeginAt }, "body.end_at"},
		{func(v *model.VoucherFields) { v.BeginAt, v.EndAt = time.Time{}, time.Time{} }, "body.end_at"},
		{func(v *model.VoucherFields) {
			*v = model.VoucherFields{
				Description: "\x00", Price: -1, FaceValue: most + 1, Stock: most + 1,
				BeginAt: v.EndAt, EndAt: v.BeginAt,
			}
		}, "body.title body.description body.price body.face_value body.end_at body.stock"},
	} {
		v := model.VoucherFields{
			Title: "Tea", Price: 1, FaceValue: 2, Stock: 3, BeginAt: begin,
			EndAt: begin.Add(time.Hour),
		}
		test.spoil(&v)
		check.Equal(t, fmt.Sprintf("wrong of %+v", v), strings.Join(wrongFields(t, v.Check()), " "), test.wrong)
	}
}

// What a patch does not say is not checked: the voucher's row has it.
func TestPatchIsCheckedForWhatItSays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		patch model.VoucherPatch
		wrong string
	}{
		"nothing":    {model.VoucherPatch{}, ""},
		"one end":    {model.VoucherPatch{EndAt: new(time.Time{})}, ""},
		"both ends":  {model.VoucherPatch{BeginAt: new(time.Now()), EndAt: new(time.Time{})}, "body.end_at"},
		"no title":   {model.VoucherPatch{Title: new("")}, "body.title"},
		"no text":    {model.VoucherPatch{Description: new("")}, ""},
		"face value": {model.VoucherPatch{FaceValue: new(int64(-1))}, "body.face_value"},
	} {
		check.Equal(t, name, strings.Join(wrongFields(t, test.patch.Check()), " "), test.wrong)
	}
}

func TestStockChangeIsChecked(t *testing.T) {
	t.Parallel()
	const most = int64(model.MaxAmount)
	for name, test := range map[string]struct {
		delta, stock *int64
		wrong        string
	}{
		"neither":         {nil, nil, "body"},
		"both":            {new(int64), new(int64), "body"},
		"least delta":     {new(-most), nil, ""},
		"less than that":  {new(-most - 1), nil, "body.delta"},
		"too much delta":  {new(most + 1), nil, "body.delta"},
		"greatest stock":  {nil, new(most), ""},
		"more than that":  {nil, new(most + 1), "body.stock"},
		"negative stock":  {nil, new(int64(-1)), "body.stock"},
		"nothing on sale": {nil, new(int64), ""},
	} {
		check.Equal(t, name, strings.Join(wrongFields(t,
			model.StockChange{Delta: test.delta, Stock: test.stock}.Check()), " "), test.wrong)
	}
}

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
				State: model.VoucherPublished, Remaining: 1, BeginAt: begin, EndAt: begin.Add(time.Hour),
				Groups: test.groups, Early: test.early,
			},
		}.At(test.at)
		shown := v.ShownTo(test.of)
		if *shown.Eligible != test.eligible || shown.Phase != test.phase || !shown.BeginAt.Equal(begin) ||
			v.Eligible != nil {
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
		check.That(t, slices.Equal(read, groups), "%q became %q", groups, read)
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

// A rate is read as it is written. Settings and administrators' changes are read by the same function.
func TestRates(t *testing.T) {
	t.Parallel()
	for text, written := range map[string]string{
		"0": "0", "0/s": "0", "1/s": "1/s", "20/s": "20/s", "100/m": "100/m", "7/h": "7/h", "1000000000/s": "1000000000/s",
		"1000000001/s": "", "20": "", "/s": "", "20/": "", "20/d": "", "-1/s": "", "+1/s": "", "1e3/s": "",
		"99999999999999999999/s": "", "off": "", " 1/s": "", "1 /s": "", "1/S": "", "1/s/s": "",
	} {
		rate, err := model.ParseRate(text)
		if (err == nil) != (written != "") || err == nil && rate.String() != written {
			t.Errorf("%q is %v, %v; want %q", text, rate, err, written)
		}
	}
}
