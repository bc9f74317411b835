// Command components lists what is inside a built program, as the program itself
// says: for people as NOTICE, and for machines as a bill of materials in CycloneDX.
//
//	components -binary bin/seckill -notice NOTICE -sbom bin/seckill.cdx.json
//
// It is run in the directory of the module that was built, whose modules' sources it
// reads for their licences. A licence that it does not recognise is an error.
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	binary := flag.String("binary", "", "the program")
	notice := flag.String("notice", "", "where the list for people goes; empty: nowhere")
	assets := flag.String("assets", "", "the directory whose package-lock.json names what was copied from npm into the program; empty: nothing was")
	sbom := flag.String("sbom", "", "where the bill of materials goes; empty: nowhere")
	flag.Parse()
	if err := run(*binary, *assets, *notice, *sbom); err != nil {
		fmt.Fprintln(os.Stderr, "components:", err)
		os.Exit(1)
	}
}

func run(binary, assets, notice, sbom string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read what %s was built of: %w", binary, err)
	}
	components, err := componentsOf(info)
	if err != nil {
		return err
	}
	if assets != "" {
		copied, err := assetsOf(assets)
		if err != nil {
			return err
		}
		components = append(components, copied...)
	}
	if notice != "" {
		if err := os.WriteFile(notice, []byte(noticeOf(components)), 0o644); err != nil {
			return fmt.Errorf("write the notice: %w", err)
		}
	}
	if sbom != "" {
		return writeSBOM(sbom, info, components)
	}
	return nil
}

// component is one module in the program.
type component struct {
	path, version, sum string
	npm                bool     // a package of npm, and no module of Go
	licence            string   // an SPDX expression
	copyright          []string // the lines that say whose it is
	notice             string   // of an Apache licence, section 4 (d)
}

// componentsOf lists the modules, and Go's own library.
func componentsOf(info *debug.BuildInfo) ([]component, error) {
	found := []component{{
		path: "std", version: strings.TrimPrefix(info.GoVersion, "go"), licence: "BSD-3-Clause",
		copyright: []string{"Copyright 2009 The Go Authors."},
	}}
	var unknown []error
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		c := component{path: module.Path, version: module.Version, sum: module.Sum}
		if err := c.read(); err != nil {
			unknown = append(unknown, err)
		}
		found = append(found, c)
	}
	slices.SortFunc(found, func(a, b component) int { return cmp.Compare(a.path, b.path) })
	return found, errors.Join(unknown...)
}

// assetsOf lists the packages that assets/package-lock.json pins, with the licences that were copied beside it.
func assetsOf(dir string) ([]component, error) {
	text, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return nil, fmt.Errorf("read which assets there are: %w", err)
	}
	var lock struct {
		Packages map[string]struct {
			Version, Integrity, License string
			Dependencies                map[string]string
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("read which assets there are: %w", err)
	}
	var found []component
	for _, name := range slices.Sorted(maps.Keys(lock.Packages[""].Dependencies)) {
		pinned := lock.Packages["node_modules/"+name]
		licence, err := os.ReadFile(filepath.Join(dir, "licences", strings.ReplaceAll(strings.TrimPrefix(name, "@"), "/", "-")+".txt"))
		if err != nil {
			return nil, fmt.Errorf("read the licence of %s: %w", name, err)
		}
		found = append(found, component{
			path: name, version: pinned.Version, sum: pinned.Integrity, npm: true, licence: pinned.License, copyright: copyrights(string(licence)),
		})
	}
	return found, nil
}

// read looks for the licence in the module's sources.
func (c *component) read() error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", c.path).Output()
	if err != nil {
		return fmt.Errorf("look for the sources of %s: %w", c.path, err)
	}
	dir := strings.TrimSpace(string(out))
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the sources of %s: %w", c.path, err)
	}
	var licences []string
	for _, file := range files {
		name := strings.ToUpper(file.Name())
		if file.IsDir() || strings.HasSuffix(name, ".GO") || !regexp.MustCompile(`^(UN)?LICEN[CS]E|^COPYING|^NOTICE`).MatchString(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return fmt.Errorf("read the licence of %s: %w", c.path, err)
		}
		if strings.HasPrefix(name, "NOTICE") {
			c.notice = strings.TrimSpace(string(text))
			continue
		}
		licences = append(licences, recognised(string(text))...)
		c.copyright = append(c.copyright, copyrights(string(text))...)
	}
	slices.Sort(licences)
	c.licence = strings.Join(slices.Compact(licences), " AND ")
	if c.licence == "" {
		return fmt.Errorf("%s %s has no licence that is known here", c.path, c.version)
	}
	return nil
}

// recognised names the licences of a text by sentences that only they have.
func recognised(text string) []string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	var found []string
	for _, licence := range []struct{ id, sentence string }{
		{"Apache-2.0", "apache license version 2.0"},
		{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"},
		{"MPL-2.0", "mozilla public license version 2.0"},
		{"MPL-2.0", "mozilla public license, version 2.0"},
		{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose"},
		{"ISC", "permission to use, copy, modify, and distribute this software for any purpose"},
		{"Unlicense", "this is free and unencumbered software released into the public domain"},
	} {
		if strings.Contains(text, licence.sentence) {
			found = append(found, licence.id)
		}
	}
	if strings.Contains(text, "redistribution and use in source and binary forms") {
		id := "BSD-2-Clause"
		if strings.Contains(text, "endorse or promote products") {
			id = "BSD-3-Clause"
		}
		found = append(found, id)
	}
	return found
}

// copyrights are the lines of a licence that name its holders.
func copyrights(text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		line = strings.Trim(strings.TrimSpace(line), "*#/ ")
		// A year tells a holder's line from the licence's own sentences and its appendix.
		if regexp.MustCompile(`^(?i)copyright .*\d{4}`).MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}

func noticeOf(components []component) string {
	var text strings.Builder
	text.WriteString("seckill\n" + copyright + "\n\n" +
		"The program contains the modules below, each under its own licence, whose text is in the module's sources\n" +
		"(https://pkg.go.dev/MODULE@VERSION?tab=licenses). SQLite, in modernc.org/sqlite, is in the public domain.\n" +
		"After them come the packages of npm that its pages are made with (deployments/tools/assets).\n" +
		"\"make notice\" writes this list from the built program.\n")
	for _, c := range components {
		fmt.Fprintf(&text, "\n%s %s\n  %s\n", c.path, c.version, c.licence)
		for _, line := range slices.Compact(c.copyright) {
			text.WriteString("  " + line + "\n")
		}
		if c.notice != "" {
			for line := range strings.Lines(c.notice) {
				text.WriteString(strings.TrimRight("  | "+strings.TrimSpace(line), " ") + "\n")
			}
		}
	}
	return text.String()
}

// copyright is that of LICENSE.
const copyright = "Copyright (c) 2026 The seckill authors. MIT licence, see LICENSE."

// writeSBOM writes the bill of materials.
func writeSBOM(path string, info *debug.BuildInfo, components []component) error {
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: "seckill", Type: cdx.ComponentTypeApplication, Name: "seckill", Version: info.Main.Version,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "MIT"}}},
	}}
	var list []cdx.Component
	var refs []string
	for _, c := range components {
		link := "pkg:golang/" + c.path + "@" + c.version
		if c.npm {
			link = "pkg:npm/" + strings.Replace(c.path, "@", "%40", 1) + "@" + c.version
		}
		one := cdx.Component{
			BOMRef: link, Type: cdx.ComponentTypeLibrary, Name: c.path, Version: c.version, PackageURL: link,
			Licenses: &cdx.Licenses{{Expression: c.licence}},
		}
		if c.sum != "" { // of go.sum, or of the lock file: what was built is what it names
			name := "go:sum"
			if c.npm {
				name = "npm:integrity"
			}
			one.Properties = &[]cdx.Property{{Name: name, Value: c.sum}}
		}
		list, refs = append(list, one), append(refs, link)
	}
	bom.Components = &list
	bom.Dependencies = &[]cdx.Dependency{{Ref: "seckill", Dependencies: &refs}}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the bill of materials: %w", err)
	}
	encoder := cdx.NewBOMEncoder(file, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := errors.Join(encoder.Encode(bom), file.Close()); err != nil {
		return fmt.Errorf("write the bill of materials: %w", err)
	}
	return nil
}
