package lab

import (
	"context"
	"errors"
	"fmt"
)

// Exhibit is a row that is shown by itself.
type Exhibit struct {
	Row

	Needs string // a program that is not installed here, without which the row cannot run; mostly empty
}

// Exhibits are all rows, in the order of the table. None has run.
func Exhibits() (all []Exhibit) {
	for _, s := range catalog() {
		e := Exhibit{Row: Row{Name: s.name, Group: s.group, Broken: s.broken(), Why: s.why, Cure: s.cure}}
		for _, program := range s.programs() {
			if installed(program) == "" {
				e.Needs = program
			}
		}
		all = append(all, e)
	}
	return all
}

// programs are those that the row starts.
func (s strategy) programs() []string {
	switch {
	case s.real:
		return []string{"redis-server"}
	case s.on == onMySQL:
		return []string{"mariadb-install-db", "mariadbd"}
	}
	return nil
}

// Show forces the interleavings upon the row of that name, with servers that go with it, and no free run. An error means
// that it could not be tried at all.
func Show(ctx context.Context, name string, spawn Spawn) (_ Row, err error) {
	s := strategyNamed(name)
	if s.name == "" {
		return Row{}, fmt.Errorf("the laboratory has no row %q", name)
	}
	o := Options{Spawn: spawn, OwnDatabase: s.on == onMySQL, rows: []strategy{s}}
	o.setDefaults()
	e, err := openEnvironment(ctx, o)
	if err != nil {
		return Row{}, fmt.Errorf("open the laboratory: %w", err)
	}
	defer func() { err = errors.Join(err, e.undo.run(ctx)) }()
	r := runner{Options: o, env: e, strategy: s}
	row := r.row()
	r.bounded(ctx, &row, r.attack)
	row.judge(s)
	return row, nil
}
