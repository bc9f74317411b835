// Package overlay compiles the product with a defect that is never in the tree (go help build, -overlay).
package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Change is a defect: in a file of the product the old text becomes the new one.
type Change struct {
	File string `json:"file"` // from the module's root
	Old  string `json:"old"`  // stands there once
	New  string `json:"new"`
}

// Text is the text of the file with the defect.
func (c Change) Text(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, c.File))
	if err != nil {
		return "", fmt.Errorf("read what is to change: %w", err)
	}
	if c.Old == c.New {
		return "", errors.New("nothing changes")
	}
	if n := strings.Count(string(text), c.Old); n != 1 {
		return "", fmt.Errorf("%s has this text %d times, not once:\n%s", c.File, n, c.Old)
	}
	return strings.Replace(string(text), c.Old, c.New, 1), nil
}

// Write writes the file with the defect, and what tells go of it, into a directory. It returns the path for -overlay.
func (c Change) Write(root, dir string) (path string, err error) {
	text, err := c.Text(root)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(c.File))
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, c.File): changed}})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, replace, 0o600)
}
