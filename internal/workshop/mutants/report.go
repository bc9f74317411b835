package main

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// most tests are named beside a defect. The others are in its file.
const most = 4

// report tries mutants, and writes a line as soon as one is decided. It tells whether one survived.
func report(ctx context.Context, out io.Writer, lab laboratory, mutants []mutant) (survived bool, err error) {
	widest := 0
	for _, m := range mutants {
		widest = max(widest, len(m.What))
	}
	var survivors []mutant
	for _, m := range mutants {
		r, err := lab.try(ctx, m)
		if err != nil {
			return false, fmt.Errorf("defect %s: %w", m.ID, err)
		}
		fmt.Fprintf(out, "%-4s | %-*s | %4.0f s | %s\n", m.ID, widest, m.What, r.took.Seconds(), verdict(r))
		if r.survived() {
			survivors = append(survivors, m)
		}
	}
	fmt.Fprintf(out, "\n%d of %d defects were noticed. What the tests said is in bin/mutants.\n", len(mutants)-len(survivors), len(mutants))
	for _, m := range survivors {
		fmt.Fprintf(out, "%s survived: %s. Alone: go run ./internal/workshop/mutants -only %s\n", m.ID, m.What, m.ID)
	}
	return len(survivors) > 0, nil
}

func verdict(r result) string {
	switch {
	case r.broken:
		return "DOES NOT BUILD"
	case r.survived():
		return "SURVIVED"
	case len(r.killers) > most:
		return fmt.Sprintf("killed by %s and %d more", strings.Join(r.killers[:most], ", "), len(r.killers)-most)
	default:
		return "killed by " + strings.Join(r.killers, ", ")
	}
}
