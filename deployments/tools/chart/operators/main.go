// Command operators makes JSON schemas, as kubeconform reads them, of the CustomResourceDefinitions that an operator
// ships:
//
//	operators DIRECTORY FILE…
//
// Each version of a kind becomes DIRECTORY/kind_version.json. What a definition does not name is refused, as kubectl
// refuses it: the API server itself would drop it.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// definition is the part of a CustomResourceDefinition that is looked at.
type definition struct {
	Spec struct {
		Names    struct{ Kind string }
		Versions []struct {
			Name   string
			Schema struct {
				OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
			}
		}
	}
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: operators DIRECTORY FILE…")
	}
	for _, file := range os.Args[2:] {
		if err := convert(file, os.Args[1]); err != nil {
			log.Fatal(err)
		}
	}
}

func convert(file, directory string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read a definition: %w", err)
	}
	var d definition
	if err := yaml.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if len(d.Spec.Versions) == 0 {
		return fmt.Errorf("read %s: it defines nothing", file)
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("make the directory of schemas: %w", err)
	}
	for _, version := range d.Spec.Versions {
		schema := version.Schema.OpenAPIV3Schema
		closeObjects(schema)
		text, err := json.Marshal(schema)
		if err != nil {
			return fmt.Errorf("encode the schema of %s: %w", d.Spec.Names.Kind, err)
		}
		name := strings.ToLower(d.Spec.Names.Kind) + "_" + version.Name + ".json"
		if err := os.WriteFile(filepath.Join(directory, name), text, 0o644); err != nil {
			return fmt.Errorf("write the schema of %s: %w", d.Spec.Names.Kind, err)
		}
	}
	return nil
}

// closeObjects lets no object have a property that its schema does not name.
func closeObjects(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		_, named := s["properties"].(map[string]any)
		_, more := s["additionalProperties"]
		if open, _ := s["x-kubernetes-preserve-unknown-fields"].(bool); named && !more && !open {
			s["additionalProperties"] = false
		}
		for _, part := range s {
			closeObjects(part)
		}
	case []any:
		for _, part := range s {
			closeObjects(part)
		}
	}
}
