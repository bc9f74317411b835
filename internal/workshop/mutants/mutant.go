package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"seckill/internal/workshop/overlay"
)

// mutant is a defect of the list.
type mutant struct {
	overlay.Change

	ID       string   `json:"id"`
	What     string   `json:"what"`
	Packages []string `json:"packages"` // whose tests should notice it
}

func parse(text []byte) ([]mutant, error) {
	var mutants []mutant
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&mutants); err != nil {
		return nil, fmt.Errorf("read the list of defects: %w", err)
	}
	known := map[string]bool{}
	for _, m := range mutants {
		if m.ID == "" || m.What == "" || known[m.ID] {
			return nil, fmt.Errorf("defect %q, %q: it needs an id of its own, and a description", m.ID, m.What)
		}
		known[m.ID] = true
	}
	return mutants, nil
}

// fit says which mutants do not fit the product any more.
func fit(root string, mutants []mutant) error {
	var errs []error
	for _, m := range mutants {
		if _, err := m.Text(root); err != nil {
			errs = append(errs, fmt.Errorf("defect %s (%s): %w", m.ID, m.What, err))
		}
		if len(m.Packages) == 0 {
			errs = append(errs, fmt.Errorf("defect %s: no package is to notice it", m.ID))
		}
		for _, dir := range m.Packages {
			if tests, _ := filepath.Glob(filepath.Join(root, dir, "*_test.go")); len(tests) == 0 {
				errs = append(errs, fmt.Errorf("defect %s: %s has no tests", m.ID, dir))
			}
		}
	}
	return errors.Join(errs...)
}
