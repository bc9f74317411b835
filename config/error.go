package config

import (
	"cmp"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with the settings.
type Problem struct {
	Variable string
	Text     string // completes a sentence that begins with the variable
}

// Error is everything that is wrong with the settings, sorted by variable.
type Error struct {
	Problems []Problem
}

// Error implements error: one message, one line per problem.
func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString("the settings cannot be used:")
	for _, p := range e.Problems {
		text.WriteString("\n  " + p.Variable + " " + p.Text)
	}
	return text.String()
}

func (r *reader) failure() *Error {
	slices.SortFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Text, b.Text))
	})
	return &Error{Problems: r.problems}
}
