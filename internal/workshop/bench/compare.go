package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// tolerance is how much worse a figure may become before it is named.
const tolerance = 0.10

// Worse is a figure that became worse by more than the tolerance.
type Worse struct {
	Row      string
	Figure   Figure
	Old, New float64
}

// String says which, and by how much.
func (w Worse) String() string {
	change := "from nothing"
	if w.Old != 0 {
		change = fmt.Sprintf("%+.0f %%", 100*(w.New/w.Old-1))
	}
	return fmt.Sprintf("%s: %s %s → %s (%s)", w.Row, w.Figure, thousandths(w.Old), thousandths(w.New), change)
}

// thousandths writes a number without digits that say nothing.
func thousandths(x float64) string { return strconv.FormatFloat(math.Round(x*1000)/1000, 'f', -1, 64) }

// Compare names what is worse in the new rows than in the old ones, by more than a tenth. Rows and figures that only
// one of them has say nothing. Rows are the same when case and load are, whatever their builds.
func Compare(before, after []Row) []Worse {
	old := map[[2]string]Figures{}
	for _, row := range before {
		old[[2]string{row.Case, row.Load}] = row.Figures
	}
	var found []Worse
	for _, row := range after {
		for _, c := range append(speed(), price()...) {
			was, measuredThen := old[[2]string{row.Case, row.Load}][c.figure]
			is, measuredNow := row.Figures[c.figure]
			if measuredThen && measuredNow && worsened(was, is, c.more) {
				found = append(found, Worse{row.name(), c.figure, was, is})
			}
		}
	}
	return found
}

// worsened tells whether a figure is worse by more than the tolerance. The last digits of a float do not matter.
func worsened(was, is float64, more bool) bool {
	const hair = 1e-9
	if more {
		return is < was*(1-tolerance)-hair*math.Abs(was)
	}
	return is > was*(1+tolerance)+hair*math.Abs(was)
}

// Verdict is the comparison in words.
func Verdict(found []Worse) string {
	if len(found) == 0 {
		return "nothing is more than 10 % worse\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d figures are more than 10 %% worse:\n", len(found))
	for _, w := range found {
		fmt.Fprintf(&b, "  %s\n", w)
	}
	return b.String()
}
