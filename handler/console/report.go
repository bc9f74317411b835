package console

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"seckill/model"
)

// reportPage is what a sale was, for people to read and to print.
type reportPage struct {
	model.Report

	Took time.Duration
}

func (c *console) report(w http.ResponseWriter, r *http.Request, v *visit) error {
	c.patiently(w)
	began := time.Now()
	report, err := c.Reports.Make(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.show(w, r, v, http.StatusOK, "report", reportPage{report, max(time.Since(began).Round(time.Millisecond), time.Millisecond)})
}

// bar is a step of the curve, in a picture as wide as the curve has steps and 100 high.
type bar struct{ X, Y, Height float64 }

// Bars are the steps of the curve in which there were orders.
func (p reportPage) Bars() (bars []bar) {
	const height = 100.0
	for n, orders := range p.Curve.Orders {
		if orders > 0 {
			high := height * float64(orders) / float64(p.most())
			bars = append(bars, bar{float64(n), height - high, high})
		}
	}
	return bars
}

func (p reportPage) most() int64 { return max(1, slices.Max(append([]int64{0}, p.Curve.Orders...))) }

// fewestSteps keep the bars of a short curve narrow.
const fewestSteps = 60

// Steps is how many steps wide the picture of the curve is.
func (p reportPage) Steps() int { return max(fewestSteps, len(p.Curve.Orders)) }

// Peak is the most orders of a step, a second.
func (p reportPage) Peak() int64 {
	if p.Curve.StepMS == 0 {
		return 0
	}
	return p.most() * int64(time.Second/time.Millisecond) / p.Curve.StepMS
}

// To is when the curve ends.
func (p reportPage) To() time.Time {
	return p.Curve.From.Add(time.Duration(int64(len(p.Curve.Orders))*p.Curve.StepMS) * time.Millisecond)
}

// Step is how long a step of the curve is.
func (p reportPage) Step() time.Duration { return time.Duration(p.Curve.StepMS) * time.Millisecond }

// SoldOutAfter is how long after its beginning the sale was sold out.
func (p reportPage) SoldOutAfter() time.Duration {
	return time.Duration(*p.SoldOutAfterMS) * time.Millisecond
}

// answerLine is how often attempts to buy heard something.
type answerLine struct {
	Code  string
	Count int64
}

// Answered are the answers, the most frequent first.
func (p reportPage) Answered() (lines []answerLine) {
	for _, code := range slices.Sorted(maps.Keys(p.Answers.ByCode)) {
		lines = append(lines, answerLine{code, p.Answers.ByCode[code]})
	}
	slices.SortStableFunc(lines, func(a, b answerLine) int { return int(b.Count - a.Count) })
	return lines
}

// Attempts is how many there were.
func (p reportPage) Attempts() (sum int64) {
	for _, count := range p.Answers.ByCode {
		sum += count
	}
	return sum
}

// Statuses are those of the voucher's orders, in the order of an order's life.
func (p reportPage) Statuses() (found []model.OrderStatus) {
	for _, status := range model.OrderStatuses() {
		if p.OrdersByStatus[status] > 0 {
			found = append(found, status)
		}
	}
	return found
}
