package bench

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Kind is what a record is of. Its records lie in deployments/bench, and their names sort by time.
type Kind string

// The kinds of records.
const (
	Cases Kind = "cases" // make bench
	Scale Kind = "scale" // make bench-scale
)

const (
	recordDir = "deployments/bench"
	// readme is the page that shows the newest records.
	readme = recordDir + "/README.md"
	// picture is drawn from the newest record of the cases.
	picture = recordDir + "/cpu.svg"

	readmeBegin = "<!-- speed: make bench KEEP=on writes this, a test compares -->\n"
	readmeEnd   = "<!-- end of speed -->"
)

// Keep writes a report as the newest record of its kind, and what is shown of it: the section of the records' README, and the picture.
// The root is that of the repository.
func (r Report) Keep(root string, kind Kind) error {
	name := fmt.Sprintf("%s-%s-%s.json", kind, r.At.Format("2006-01-02T1504"), strings.TrimSuffix(r.Commit, "+"))
	if err := os.MkdirAll(filepath.Join(root, recordDir), 0o755); err != nil {
		return fmt.Errorf("keep the report: %w", err)
	}
	if err := r.Write(filepath.Join(root, recordDir, name)); err != nil {
		return err
	}
	return show(root)
}

// show brings that README and the picture up to date with the newest records.
func show(root string) error {
	page, drawing, err := shown(root)
	if err != nil {
		return err
	}
	name := filepath.Join(root, readme)
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read the README: %w", err)
	}
	before, _, after, err := section(string(text))
	if err == nil {
		err = os.WriteFile(name, []byte(before+page+after), 0o644)
	}
	if err == nil && drawing != "" {
		err = os.WriteFile(filepath.Join(root, picture), []byte(drawing), 0o644)
	}
	if err != nil {
		return fmt.Errorf("show the newest records: %w", err)
	}
	return nil
}

// section divides the README into what stands before the figures, the figures, and what stands behind them.
func section(text string) (before, figures, after string, err error) {
	before, rest, begins := strings.Cut(text, readmeBegin)
	figures, after, ends := strings.Cut(rest, readmeEnd)
	if !begins || !ends {
		return "", "", "", errors.New("the README has no section between " + strings.TrimSpace(readmeBegin) + " and " + readmeEnd)
	}
	return before + readmeBegin, figures, readmeEnd + after, nil
}

// shown is what the README says of the newest records, and the picture.
func shown(root string) (page, drawing string, err error) {
	var b strings.Builder
	cases, found, err := newest(root, Cases)
	if err != nil {
		return "", "", err
	}
	if !found {
		b.WriteString("No figures are recorded yet: `make bench KEEP=on` takes them and writes them here.\n")
	} else {
		b.WriteString(cases.preamble() + "\n")
		drawing = cases.Picture()
		fmt.Fprintf(&b, "![CPU time an answer, by process](%s)\n\n", path.Base(picture))
		b.WriteString(cases.Markdown(cases.mainRows()))
	}
	scale, found, err := newest(root, Scale)
	if err != nil {
		return "", "", err
	}
	if found {
		b.WriteString("\nHow the cost of an order grows (`make bench-scale`). " + scale.preamble() + "\n" + scale.Markdown(scale.Rows))
	}
	return b.String(), drawing, nil
}

// newest reads the newest record of a kind, if there is one.
func newest(root string, kind Kind) (report Report, found bool, err error) {
	names, err := filepath.Glob(filepath.Join(root, recordDir, string(kind)+"-*.json")) // sorted
	if err != nil || len(names) == 0 {
		return Report{}, false, err
	}
	report, err = ReadReport(names[len(names)-1])
	return report, err == nil, err
}
