package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func pages(files []file) []file {
	return slices.DeleteFunc(slices.Clone(files), func(f file) bool { return path.Ext(f.path) != ".md" })
}

// maxPage is how long a page may be, in bytes; limits are those of some, and in lines. People finish short pages.
const maxPage = 20_000

var limits = map[string]struct{ lines, bytes int }{
	"README.md":       {250, 14_000},
	"README.zh-CN.md": {250, 14_000},
}

func longPages(files []file) []string {
	var found []string
	for _, f := range pages(files) {
		limit, own := limits[f.path]
		lines := strings.Count(f.text, "\n")
		switch {
		case own && (lines > limit.lines || len(f.text) > limit.bytes):
			found = append(found, fmt.Sprintf("%s: %d lines and %d bytes; at most %d and %d", f.path, lines,
				len(f.text), limit.lines, limit.bytes))
		case len(f.text) > maxPage:
			found = append(found, fmt.Sprintf("%s: %d bytes; split it by subject, at most %d", f.path, len(f.text),
				maxPage))
		}
	}
	return found
}

// lostTests finds tests and benchmarks that a page names and that are not there, under that name.
func lostTests(files []file) []string {
	there := map[string]bool{}
	for _, f := range goFiles(files) {
		for _, declaration := range f.tree.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && f.test() {
				there[function.Name.Name] = true
			}
		}
	}
	var found []string
	for _, f := range pages(files) {
		for _, name := range regexp.MustCompile(`\b(Test|Fuzz|Benchmark|Example)[A-Z]\w+`).FindAllString(f.text, -1) {
			if !there[name] {
				found = append(found, f.path+": there is no "+name)
			}
		}
	}
	return found
}

// lostMetrics finds metrics in pages that are not in the list, which a test compares with a running server.
func lostMetrics(files []file) []string {
	const list = "deployments/prometheus/metrics.md"
	metric := regexp.MustCompile("`(seckill_[a-z_]+)")
	there := map[string]bool{}
	for _, f := range pages(files) {
		if f.path == list {
			for _, match := range metric.FindAllStringSubmatch(f.text, -1) {
				there[match[1]] = true
			}
		}
	}
	var found []string
	for _, f := range pages(files) {
		for _, match := range metric.FindAllStringSubmatch(f.text, -1) {
			if !there[match[1]] {
				found = append(found, f.path+": there is no metric "+match[1])
			}
		}
	}
	return found
}

func links(page file) []string {
	var all []string
	for _, match := range regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page.text, -1) {
		all = append(all, match[1]+match[2])
	}
	return all
}

func lostLinks(files []file) []string {
	there, documents := map[string]bool{}, map[string]file{}
	for _, f := range files {
		for name := f.path; name != "."; name = path.Dir(name) {
			there[name] = true
		}
	}
	for _, f := range pages(files) {
		documents[f.path] = f
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		page := documents[name]
		for _, link := range links(page) {
			to, heading, named := strings.Cut(link, "#")
			target := path.Join(page.dir(), to)
			if to == "" {
				target = page.path
			}
			switch {
			case strings.Contains(link, "://"):
			case !there[target]:
				found = append(found, fmt.Sprintf("%s: %s is not there", page.path, link))
			case named && !slices.Contains(headings(documents[target].text), heading):
				found = append(found, fmt.Sprintf("%s: %s has no such heading", page.path, link))
			}
		}
	}
	return found
}

// headings of a page, as links name them: in small letters, without punctuation, with dashes for spaces.
func headings(text string) []string {
	var all []string
	for _, match := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		bare := regexp.MustCompile(`[^\p{L}\p{N}_\- ]`).ReplaceAllString(strings.ToLower(match[1]), "")
		all = append(all, strings.ReplaceAll(bare, " ", "-"))
	}
	return all
}

// translations are pages that say the same in two languages.
var translations = map[string]string{
	"README.md": "README.zh-CN.md", "docs/from-the-tutorial.md": "docs/from-the-tutorial.zh-CN.md",
}

// code is what stands in a page as such: blocks without their comments, and spans.
var (
	block   = regexp.MustCompile("(?s)\n```sh\n(.*?)```")
	span    = regexp.MustCompile("`([^`\n]+)`")
	comment = regexp.MustCompile(`(?m)(^|\s+)# .*$`)
	figure  = regexp.MustCompile(`\d[\d.,]*\d|\d`)
)

func code(page file) []string {
	var all []string
	text := block.ReplaceAllStringFunc(page.text, func(match string) string {
		all = append(all, comment.ReplaceAllString(block.FindStringSubmatch(match)[1], ""))
		return "\n"
	})
	for _, match := range span.FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	return all
}

// unlikeTranslations finds commands, settings, names, links and tables' figures that only one language shows.
func unlikeTranslations(files []file) []string {
	shown := func(page file) map[string]bool {
		all := map[string]bool{}
		for _, part := range append(code(page), links(page)...) {
			all[strings.ReplaceAll(part, ".zh-CN.md", ".md")] = true
		}
		for line := range strings.Lines(page.text) {
			if strings.HasPrefix(line, "|") {
				for _, number := range figure.FindAllString(span.ReplaceAllString(line, ""), -1) {
					all["figure "+number] = true
				}
			}
		}
		return all
	}
	var found []string
	all := pages(files)
	for first, second := range translations {
		pair := [2]map[string]bool{}
		for _, f := range all {
			switch f.path {
			case first:
				pair[0] = shown(f)
			case second:
				pair[1] = shown(f)
			}
		}
		for _, part := range slices.Sorted(maps.Keys(pair[0])) {
			if !pair[1][part] {
				found = append(found, fmt.Sprintf("%s: %s has %q", second, first, part))
			}
		}
		for _, part := range slices.Sorted(maps.Keys(pair[1])) {
			if !pair[0][part] {
				found = append(found, fmt.Sprintf("%s: %s has %q", first, second, part))
			}
		}
	}
	return found
}

func lostTargets(files []file) []string {
	var makefile string
	for _, f := range files {
		if f.path == "Makefile" {
			makefile = f.text
		}
	}
	call := regexp.MustCompile(`(?m)(?:^|[(;&] *)make((?: [a-z0-9-]+)+)((?: [A-Z_]+=(?:'[^']*'|\S*))*)`)
	var found []string
	for _, f := range pages(files) {
		for _, text := range code(f) {
			for _, match := range call.FindAllStringSubmatch(text, -1) {
				for target := range strings.FieldsSeq(match[1]) {
					if !regexp.MustCompile(`(?m)^` + target + `:`).MatchString(makefile) {
						found = append(found, f.path+": there is no make "+target)
					}
				}
				for _, variable := range regexp.MustCompile(`[A-Z_]+=`).FindAllString(match[2], -1) {
					if !strings.Contains(makefile, variable) &&
						!strings.Contains(makefile, "("+strings.TrimSuffix(variable, "=")+")") {
						found = append(found, f.path+": make knows no "+variable)
					}
				}
			}
		}
	}
	return found
}

func TestPageRulesFindWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	promises := file{path: "docs/promises.md", text: "held by `TestDoors` and `TestWindows`"}
	wantOne(t, lostTests([]file{promises, parse(t, "p/p_test.go", "package p\n\nfunc TestDoors() {}\n")}),
		"TestWindows")

	list := file{path: "deployments/prometheus/metrics.md", text: "| `seckill_orders_total` |"}
	wantOne(t, lostMetrics([]file{list, {
		path: "a.md",
		text: "`seckill_orders_total` and `seckill_ordered_total{role=\"x\"}`",
	}}), "seckill_ordered_total")

	page := file{path: "docs/page.md", text: "# The road, in short\n\nsee [it](#the-road-in-short), [there](../README.md#start), [a](pictures), <img src=\"pictures/a.png\">, [far](https://example.org/x)"}
	others := []file{
		{path: "README.md", text: "# Start\n"},
		{path: "README.zh-CN.md", text: "## 一场销售\n[x](#一场销售)"},
		{path: "docs/pictures/a.png"},
	}
	report(t, lostLinks(append(others, page)))
	wantOne(t, lostLinks(append(others, page, file{path: "b.md", text: "[x](docs/pages.md)"})), "b.md: docs/pages.md")
	wantOne(t, lostLinks(append(others, page, file{path: "b.md", text: "[x](README.md#end)"})),
		"README.md#end has no such heading")

	report(t, longPages([]file{
		{path: "a.md", text: strings.Repeat("a", maxPage)},
		{path: "a.json", text: strings.Repeat("a", maxPage+1)},
	}))
	wantOne(t, longPages([]file{{path: "a.md", text: strings.Repeat("a", maxPage+1)}}), "split it")
	wantOne(t, longPages([]file{{path: "README.md", text: strings.Repeat("\n", 251)}}), "251 lines")
	wantOne(t, longPages([]file{{path: "README.zh-CN.md", text: strings.Repeat("a", 14_001)}}), "14001 bytes")

	english := file{
		path: "README.md",
		text: "[中文](README.zh-CN.md) `SECKILL_REDIS_URL`\n```sh\nmake run # serve\n```\n| 0.41 |\n",
	}
	chinese := file{
		path: "README.zh-CN.md",
		text: "[English](README.md) `SECKILL_REDIS_URL`\n```sh\nmake run # 运行\n```\n| 0.41 |\n",
	}
	report(t, unlikeTranslations([]file{english, chinese}))
	for _, change := range [][2]string{{"make run", "make demo"}, {"SECKILL_REDIS_URL", "SECKILL_NATS_URL"}, {"0.41", "0.4"}, {"`S", "[a](b.md) `S"}} {
		changed := file{path: chinese.path, text: strings.Replace(chinese.text, change[0], change[1], 1)}
		if len(unlikeTranslations([]file{english, changed})) == 0 {
			t.Errorf("%q in the place of %q is not noticed", change[1], change[0])
		}
	}

	makefile := file{path: "Makefile", text: "run: deps ## serve\n\tPORT=$(PORT) go run .\n"}
	report(t, lostTargets([]file{makefile, {path: "a.md", text: "`make run PORT=1`, and make other things"}}))
	wantOne(t, lostTargets([]file{makefile, {path: "a.md", text: "`make walk`"}}), "no make walk")
	wantOne(t, lostTargets([]file{makefile, {path: "a.md", text: "\n```sh\nmake run PORT='1 2' HOST=1\n```"}}),
		"knows no HOST=")
}
