package bench

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestComparisonNamesWhatBecameMoreThanATenthWorse(t *testing.T) {
	t.Parallel()
	before := []Row{
		{Case: "async", Load: "128", Figures: Figures{Ratio: 0.40, P99: 10, CPUProduct: 100, Drain: 30_000, Fsyncs: 0}},
		{Case: "sync", Load: "128", Figures: Figures{Ratio: 0.33}},
		{Case: "gone", Load: "128", Figures: Figures{Ratio: 1}},
	}
	after := []Row{
		{Case: "async", Load: "128", Figures: Figures{Ratio: 0.36, P99: 11, CPUProduct: 110.1, Drain: 26_900, Fsyncs: 0.1, Memory: 900}},
		{Case: "sync", Load: "128", Figures: Figures{Ratio: 0.9}},
		{Case: "sync", Load: OpenLoad, Figures: Figures{P99: 1000}},
	}
	var named []string
	for _, worse := range Compare(before, after) {
		named = append(named, worse.String())
	}
	want := []string{
		"async @128: cpu.product 100 → 110.1 (+10 %)",
		"async @128: fsyncs 0 → 0.1 (from nothing)",
		"async @128: drain 30000 → 26900 (-10 %)",
	}
	if !reflect.DeepEqual(named, want) {
		t.Errorf("worse are %q, want %q", named, want)
	}
	if found := Compare(before, before); len(found) > 0 {
		t.Errorf("the same is worse: %v", found)
	}
	if said := Verdict(nil); said != "nothing is more than 10 % worse\n" {
		t.Errorf("verdict: %q", said)
	}
}

func TestRoundsBecomeMedians(t *testing.T) {
	t.Parallel()
	got := middle([]Figures{{Ratio: 0.3, Drain: 5}, {Ratio: 0.9}, {Ratio: 0.4}})
	if want := (Figures{Ratio: 0.4, Drain: 5}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTargetsKnowWhichWayIsBetter(t *testing.T) {
	t.Parallel()
	more, less := target{figure: Ratio, least: 0.4, aim: 0.5}, target{figure: P99, least: 20, aim: 5}
	for _, test := range []struct {
		target
		value float64
		want  string
	}{
		{more, 0.39, "short"},
		{more, 0.4, "met"},
		{more, 0.5, "aim"},
		{less, 20.1, "short"},
		{less, 20, "met"},
		{less, 5, "aim"},
	} {
		if got := test.verdict(test.value); got != test.want {
			t.Errorf("%s %v is %q, want %q", test.figure, test.value, got, test.want)
		}
	}
	for _, one := range targets() {
		if one.reached(one.least, one.aim) || !one.reached(one.aim, one.least) {
			t.Errorf("%s: the aim %v is less than the least %v", one.what, one.aim, one.least)
		}
	}
}

// A run whose accounts do not agree is an error and no figure.
func TestAccounts(t *testing.T) {
	t.Parallel()
	sale := ledger{
		work: work{sells: true}, heard: heard{answers: 100, unheard: 8},
		rows: 103, stock: 1000, remaining: 897, fsyncs: 4, messages: 5, async: true,
	}
	refusal := ledger{work: work{code: model.CodeSoldOut}, heard: heard{answers: 100, refused: 100, unheard: 8}, placed: 101}
	reading := ledger{heard: heard{answers: 100}}
	for name, good := range map[string]ledger{"sale": sale, "refusal": refusal, "reading": reading} {
		if err := good.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, test := range map[string]struct {
		ledger
		spoil func(*ledger)
		want  string
	}{
		"an order is lost":          {sale, func(l *ledger) { l.rows, l.remaining = 99, 901 }, "100 orders were accepted"},
		"orders nobody asked for":   {sale, func(l *ledger) { l.rows, l.remaining = 109, 891 }, "there are 109 rows"},
		"a unit is lost":            {sale, func(l *ledger) { l.remaining-- }, "of 1000 units 896 remain"},
		"no fsync of the database":  {sale, func(l *ledger) { l.fsyncs = 0 }, "without an fsync"},
		"no message":                {sale, func(l *ledger) { l.messages = 0 }, "stored no message"},
		"a buyer is refused":        {sale, func(l *ledger) { l.refused = 1 }, "1 of 100 orders were refused"},
		"a buyer hears nothing":     {sale, func(l *ledger) { l.broken = 1 }, "1 requests had no answer"},
		"nobody is answered":        {reading, func(l *ledger) { l.answers = 0 }, "there was no answer"},
		"a refusal that sells":      {refusal, func(l *ledger) { l.refused = 99 }, "1 of 100 answers were no refusal"},
		"a refusal of another kind": {refusal, func(l *ledger) { l.placed = 90 }, "counts 90 × SOLD_OUT"},
		"a reading that is refused": {reading, func(l *ledger) { l.refused = 2 }, "2 of 100 answers were refusals"},
	} {
		bad := test.ledger
		test.spoil(&bad)
		if err := bad.check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// The generator stood still for half a second: what was due meanwhile is as late as it is for a buyer.
func TestLatenciesCountFromWhenARequestWasDue(t *testing.T) {
	t.Parallel()
	start := time.Now()
	var sent []*vegeta.Result
	for n := range 100 {
		due := start.Add(time.Duration(n) * 10 * time.Millisecond)
		if stalled := start.Add(500 * time.Millisecond); n >= 10 && due.Before(stalled) {
			due = stalled
		}
		sent = append(sent, &vegeta.Result{Seq: uint64(n), Code: 202, Timestamp: due, Latency: time.Millisecond})
	}
	slices.Reverse(sent) // they arrive in any order
	sent[0].Code, sent[1].Code = 0, 409
	got := sinceDue(sent, 100)
	if got.answers != 99 || got.broken != 1 || got.refused != 1 || got.took != 991*time.Millisecond {
		t.Errorf("%+v", got)
	}
	if got.p50 != time.Millisecond || got.p99 != 401*time.Millisecond {
		t.Errorf("p50 %v, p99 %v: want 1ms and 401ms", got.p50, got.p99)
	}
}

func TestMetricsAreAddedUpOverTheirLabels(t *testing.T) {
	t.Parallel()
	got := parse("# HELP a b c\n" + `placed{outcome="OK"} 5` + "\n" + `placed{outcome="SOLD_OUT"} 2` + "\nplaced_sum 1e+03\nbroken x\n")
	if all, sold, other := sum(got, "placed"), sum(got, "placed", `outcome="SOLD_OUT"`), sum(got, "placed_sum"); all != 7 || sold != 2 || other != 1000 {
		t.Errorf("%v: %v %v %v", got, all, sold, other)
	}
}

// The records' README and picture show the newest ones. To bring them up to date: make bench KEEP=on.
func TestREADMEShowsTheNewestRecords(t *testing.T) {
	t.Parallel()
	page, drawing, err := shown(root)
	check.Must(t, err)
	readmeText := string(check.Value(os.ReadFile(filepath.Join(root, readme)))(t))
	_, figures, _, err := section(readmeText)
	check.Must(t, err)
	if figures != page {
		t.Errorf("the README's figures are not\n%s", page)
	}
	if drawing != "" && string(check.Value(os.ReadFile(filepath.Join(root, picture)))(t)) != drawing {
		t.Errorf("%s is not drawn from the newest record", picture)
	}
}

// A record that is kept is what the README shows then, and what the next run is compared with.
func TestRecordsAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	check.Must(t, os.MkdirAll(filepath.Join(dir, recordDir), 0o700))
	check.Must(t, os.WriteFile(filepath.Join(dir, readme), []byte("before\n"+readmeBegin+"stale\n"+readmeEnd+"\nbehind\n"), 0o600))
	report := Report{At: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Commit: "abc+", Rounds: 3, Seconds: 3, Machine: Machine{CPU: "slow", Cores: 2}}
	report.Rows = []Row{
		{Case: yardstickName, Load: "128", Figures: Figures{Ratio: 1, CPUProduct: 40}},
		{Case: "async", Load: "128", Figures: Figures{Ratio: 0.45, CPUProduct: 80, CPURedis: 20}},
		{Case: "async", Load: "32", Figures: Figures{Ratio: 0.111}},
		{Case: "async", Load: OpenLoad, Figures: Figures{P99: 30}},
		{Build: "other", Case: "async", Load: "128", Figures: Figures{Ratio: 0.222}},
	}
	check.Must(t, report.Keep(dir, Cases))
	report.At, report.Rows = report.At.Add(time.Hour), []Row{
		{Case: "async: buyers", Load: "10", Figures: Figures{CPUProduct: 50}},
		{Case: "async: buyers", Load: "1000000", Figures: Figures{CPUProduct: 75, BuyerBytes: 150}},
		{Case: "sync: vouchers", Load: "1", Figures: Figures{CPUProduct: 100}},
		{Case: "async: vouchers", Load: "1", Figures: Figures{CPUProduct: 100}},
		{Case: "async: vouchers", Load: "10", Figures: Figures{CPUProduct: 125}},
		{Case: "sync: vouchers", Load: "100", Figures: Figures{CPUProduct: 116}},
		{Case: "async: hot", Load: "0", Figures: Figures{P99: 10}},
		{Case: "async: hot", Load: "99", Figures: Figures{P99: 11}},
	}
	check.Must(t, report.Keep(dir, Scale))

	text := string(check.Value(os.ReadFile(filepath.Join(dir, readme)))(t))
	for _, want := range []string{
		"before\n", "\nbehind\n", "2 January 2026", "| case | load | ratio |",
		"| async | 128 | 0.45 |", "| 0.4 | 0.5 | 0.45 | met |", "| 20 | 5 | 30.00 | short |",
		"| async: buyers | 10 | 1000000 | 50 | 75 | 1.50 | – |  |",
		"| async: vouchers | 1 | 10 | 100 | 125 | 1.25 | 1.25 | met |", "| sync: vouchers | 1 | 100 | 100 | 116 | 1.16 | 1.15 | short |", "| 200 | 120 | 150.00 | met |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the README does not say %q:\n%s", want, text)
		}
	}
	for _, not := range []string{"stale", "0.111", "0.222", "NaN"} {
		if strings.Contains(text, not) {
			t.Errorf("the README says %q:\n%s", not, text)
		}
	}
	drawing := string(check.Value(os.ReadFile(filepath.Join(dir, picture)))(t))
	if !strings.Contains(drawing, "100 µs, ratio 0.45") {
		t.Errorf("the picture: %s", drawing)
	}
	kept, found, err := newest(dir, Cases)
	if err != nil || !found || kept.Commit != "abc+" || math.Abs(kept.Rows[1].Figures[Ratio]-0.45) > 1e-9 {
		t.Errorf("the newest record is %+v, %v", kept, err)
	}
}
