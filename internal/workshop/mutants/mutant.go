package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is a defect: in a file of the product the old text becomes the new one.
type mutant struct {
	ID       string   `json:"id"`
	What     string   `json:"what"`
	File     string   `json:"file"`
	Old      string   `json:"old"`
	New      string   `json:"new"`
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
		_, err := m.apply(root)
		errs = append(errs, err)
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

// apply is the text of the file with the defect.
func (m mutant) apply(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return "", fmt.Errorf("defect %s: %w", m.ID, err)
	}
	if m.Old == m.New {
		return "", fmt.Errorf("defect %s changes nothing", m.ID)
	}
	if n := strings.Count(string(text), m.Old); n != 1 {
		return "", fmt.Errorf("defect %s (%s): %s has this text %d times, not once:\n%s", m.ID, m.What, m.File, n, m.Old)
	}
	return strings.Replace(string(text), m.Old, m.New, 1), nil
}

// overlay writes the file with the defect, and what tells go of it, into a directory. It returns the latter's path.
func (m mutant) overlay(root, dir string) (string, error) {
	text, err := m.apply(root)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.File): changed}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, replace, 0o600)
}
