package model_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// wrongFields are the places of a VALIDATION error, in its order.
func wrongFields(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok || refusal.Code != model.CodeValidation {
		t.Fatalf("%v is no VALIDATION error", err)
	}
	var places []string
	for _, field := range refusal.Fields {
		places = append(places, field.Location)
	}
	return places
}

func TestNewVoucherIsChecked(t *testing.T) {
	t.Parallel()
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		spoil func(*model.VoucherFields)
		wrong []string
	}{
		"good": {func(*model.VoucherFields) {}, nil},
		"longest texts": {func(v *model.VoucherFields) {
			v.Title, v.Description = strings.Repeat("茶", 200), strings.Repeat("茶", 4000)
		}, nil},
		"blank title":        {func(v *model.VoucherFields) { v.Title = " \u3000" }, []string{"body.title"}},
		"long title":         {func(v *model.VoucherFields) { v.Title = strings.Repeat("茶", 201) }, []string{"body.title"}},
		"title of two lines": {func(v *model.VoucherFields) { v.Title = "a\nb" }, []string{"body.title"}},
		"long description":   {func(v *model.VoucherFields) { v.Description = strings.Repeat("茶", 4001) }, []string{"body.description"}},
		"lines and tabs":     {func(v *model.VoucherFields) { v.Description = "a\r\n\tb" }, nil},
		"control characters": {func(v *model.VoucherFields) { v.Description = "\x1b[31m" }, []string{"body.description"}},
		"the largest amounts": {func(v *model.VoucherFields) {
			v.Price, v.FaceValue, v.Stock = model.MaxAmount, model.MaxAmount, model.MaxAmount
		}, nil},
		"no amounts":        {func(v *model.VoucherFields) { v.Price, v.FaceValue, v.Stock = 0, 0, 0 }, nil},
		"negative price":    {func(v *model.VoucherFields) { v.Price = -1 }, []string{"body.price"}},
		"negative stock":    {func(v *model.VoucherFields) { v.Stock = -1 }, []string{"body.stock"}},
		"ends as it begins": {func(v *model.VoucherFields) { v.EndAt = v.BeginAt }, []string{"body.end_at"}},
		"no times":          {func(v *model.VoucherFields) { v.BeginAt, v.EndAt = time.Time{}, time.Time{} }, []string{"body.end_at"}},
		"everything at once": {
			func(v *model.VoucherFields) {
				*v = model.VoucherFields{
					Description: "\x00", Price: -1, FaceValue: model.MaxAmount + 1, Stock: model.MaxAmount + 1, BeginAt: v.EndAt, EndAt: v.BeginAt,
				}
			},
			[]string{"body.title", "body.description", "body.price", "body.face_value", "body.end_at", "body.stock"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := model.VoucherFields{Title: "Tea", Price: 1, FaceValue: 2, Stock: 3, BeginAt: begin, EndAt: begin.Add(time.Hour)}
			test.spoil(&v)
			if wrong := wrongFields(t, v.Check()); !slices.Equal(wrong, test.wrong) {
				t.Errorf("wrong are %v, want %v", wrong, test.wrong)
			}
		})
	}
}

// What a patch does not say is not checked: the voucher's row has it.
func TestPatchIsCheckedForWhatItSays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		patch model.VoucherPatch
		wrong []string
	}{
		"nothing":    {model.VoucherPatch{}, nil},
		"one end":    {model.VoucherPatch{EndAt: new(time.Time{})}, nil},
		"both ends":  {model.VoucherPatch{BeginAt: new(time.Now()), EndAt: new(time.Time{})}, []string{"body.end_at"}},
		"no title":   {model.VoucherPatch{Title: new("")}, []string{"body.title"}},
		"no text":    {model.VoucherPatch{Description: new("")}, nil},
		"face value": {model.VoucherPatch{FaceValue: new(int64(-1))}, []string{"body.face_value"}},
	} {
		if wrong := wrongFields(t, test.patch.Check()); !slices.Equal(wrong, test.wrong) {
			t.Errorf("%s: wrong are %v, want %v", name, wrong, test.wrong)
		}
	}
}

func TestStockChangeIsChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change model.StockChange
		wrong  []string
	}{
		"neither":         {model.StockChange{}, []string{"body"}},
		"both":            {model.StockChange{Delta: new(int64), Stock: new(int64)}, []string{"body"}},
		"least delta":     {model.StockChange{Delta: new(int64(-model.MaxAmount))}, nil},
		"less than that":  {model.StockChange{Delta: new(int64(-model.MaxAmount - 1))}, []string{"body.delta"}},
		"too much delta":  {model.StockChange{Delta: new(int64(model.MaxAmount + 1))}, []string{"body.delta"}},
		"greatest stock":  {model.StockChange{Stock: new(int64(model.MaxAmount))}, nil},
		"more than that":  {model.StockChange{Stock: new(int64(model.MaxAmount + 1))}, []string{"body.stock"}},
		"negative stock":  {model.StockChange{Stock: new(int64(-1))}, []string{"body.stock"}},
		"nothing on sale": {model.StockChange{Stock: new(int64)}, nil},
	} {
		if wrong := wrongFields(t, test.change.Check()); !slices.Equal(wrong, test.wrong) {
			t.Errorf("%s: wrong are %v, want %v", name, wrong, test.wrong)
		}
	}
}

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
