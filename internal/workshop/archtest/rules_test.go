// Package archtest holds all files to the repository's rules; who may import whom is in .golangci.yml. It is all tests.
package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"seckill/config"
)

// rule looks at the whole repository and names what is wrong, one line each.
type rule struct {
	name  string
	check func([]file) []string
}

var rules = []rule{
	{"every package says what it is", undocumented},
	{"no sleeping", sleeping},
	{"no verdict on the wall clock", wallClocks},
	{"no machine's own paths", machinePaths},
	{"nothing is left to do", unfinished},
	{"SQL and Lua open with a comment", silentScripts},
	{"files stay small", longFiles},
	{"only real settings are named", unknownSettings},
	{"the top level is fixed", strayTop},
	{"pages name tests that are there", lostTests},
	{"pages name metrics that are there", lostMetrics},
	{"links lead somewhere", lostLinks},
	{"pages stay short", longPages},
	{"both languages show the same", unlikeTranslations},
	{"pages name targets of make that are there", lostTargets},
}

func TestRules(t *testing.T) {
	t.Parallel()
	files := repository(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			report(t, r.check(files))
		})
	}
}

// undocumented finds packages without a doc comment. One of nothing but tests needs none.
func undocumented(files []file) []string {
	documented := map[string]bool{}
	for _, f := range goFiles(files) {
		if f.test() {
			continue
		}
		// A sentence about the package, or about the command when it is one.
		says := f.tree.Doc != nil && regexp.MustCompile(`^(Package `+f.tree.Name.Name+
			`|Command [\w-]+|Seckill) `).MatchString(f.tree.Doc.Text())
		documented[f.dir()] = documented[f.dir()] || says
	}
	var found []string
	for dir, ok := range documented {
		if !ok {
			found = append(found, dir+": no file has a comment that begins with \"Package\" and the package's name")
		}
	}
	slices.Sort(found)
	return found
}

// sleeping finds time.Sleep outside of bubbles. A line that takes time on purpose says why behind "real time:".
func sleeping(files []file) []string {
	var found []string
	for _, f := range goFiles(files) {
		for _, declaration := range f.tree.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && f.test() && virtual(f, function) {
				continue
			}
			ast.Inspect(declaration, func(node ast.Node) bool {
				if node != nil && selects(node, "time", "Sleep") && !f.excused(node) {
					found = append(found, f.at(node)+": waits for time instead of an event")
				}
				return true
			})
		}
	}
	return found
}

// machinePaths finds absolute paths of a home directory, which one machine has. (Brackets: no match with this line.)
func machinePaths(files []file) []string {
	return lines(files, regexp.MustCompile(`(^|[\s"'`+"`"+`(=:])/(work|roo[t]|Users|hom[e]/[a-z])/`), "names a path of one machine")
}

// unfinished finds notes to self: what is left to do belongs into an issue. (Brackets: as above.)
func unfinished(files []file) []string {
	return lines(files, regexp.MustCompile(`\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b`), "is a note that something is unfinished")
}

func lines(files []file, pattern *regexp.Regexp, what string) []string {
	var found []string
	for _, f := range files {
		if strings.HasSuffix(f.path, "go.sum") {
			continue // hashes
		}
		for number, line := range strings.Split(f.text, "\n") {
			if match := pattern.FindString(line); match != "" {
				found = append(found, fmt.Sprintf("%s:%d: %q %s", f.path, number+1, strings.TrimSpace(match), what))
			}
		}
	}
	return found
}

// silentScripts finds SQL and Lua files that do not open with their purpose, and in Lua with KEYS or ARGV.
func silentScripts(files []file) []string {
	var found []string
	for _, f := range files {
		kind := path.Ext(f.path)
		if kind != ".sql" && kind != ".lua" {
			continue
		}
		var comment strings.Builder
		for line := range strings.SplitSeq(f.text, "\n") {
			text, ok := strings.CutPrefix(line, "--")
			if !ok {
				break
			}
			if !strings.HasPrefix(strings.TrimSpace(text), "+goose") { // an instruction to the migrator
				comment.WriteString(text)
			}
		}
		switch {
		case len(strings.Fields(comment.String())) < 3:
			found = append(found, f.path+": does not open with a comment that says what it does")
		case kind == ".lua" && !strings.Contains(comment.String(), "KEYS") &&
			!strings.Contains(comment.String(), "ARGV"):
			found = append(found, f.path+": its opening comment names neither KEYS nor ARGV")
		}
	}
	return found
}

// maxLines bounds a Go file that is no test. A file holds one idea, however long that takes; a longer one says why.
const maxLines = 600

func longFiles(files []file) []string {
	var found []string
	for _, f := range goFiles(files) {
		if count := strings.Count(f.text, "\n"); count > maxLines && !f.test() &&
			!strings.Contains(f.text, "Longer than 600 lines because") {
			found = append(found,
				fmt.Sprintf("%s: %d lines; split it, or say in it \"Longer than 600 lines because …\"", f.path, count))
		}
	}
	return found
}

// top is what the top level holds beside names with a dot. A reader finds each by the map in README.md.
var top = []string{
	"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "NOTICE", "README.md", "README.zh-CN.md", "SECURITY.md",
	"go.mod", "go.sum", "main.go",
	"config", "deployments", "docs", "handler", "internal", "lock", "model", "queue", "repository", "service",
}

func strayTop(files []file) []string {
	var found []string
	for _, f := range files {
		first, _, _ := strings.Cut(f.path, "/")
		if !strings.HasPrefix(first, ".") && !slices.Contains(top, first) {
			found = append(found, f.path+": "+first+" has no place at the top level")
		}
	}
	return found
}

// unknownSettings finds variables that config does not know: a renamed one stops a compose file, or misleads a reader.
func unknownSettings(files []file) []string {
	name := regexp.MustCompile(`\bSECKILL_[A-Z][A-Z_]*[A-Z]\b`)
	known := map[string]bool{}
	for _, setting := range config.Table() {
		known[setting.Variable] = true
	}
	var found []string
	for _, f := range files {
		if f.syntax != nil {
			continue // code goes through config
		}
		for number, line := range strings.Split(f.text, "\n") {
			for _, variable := range name.FindAllString(line, -1) {
				if !known[variable] && !known[strings.TrimSuffix(variable, "_FILE")] {
					found = append(found, fmt.Sprintf("%s:%d: %s is no setting", f.path, number+1, variable))
				}
			}
		}
	}
	return found
}

var measuring = []string{"internal/workshop/bench", "lock/bench", "lock/interop"}

// wallClocks finds verdicts that depend on a busy machine: compared spans of real time, and limits of it as numbers. A
// test waits for the event (package check, whose deadline means "it hung") or runs in virtual time (testing/synctest).
// A context that is to run out has a name: check.Soon, or a constant whose comment says why slowness is harmless.
func wallClocks(files []file) []string {
	var found []string
	for _, f := range goFiles(files) {
		if !f.test() || slices.Contains(measuring, f.dir()) {
			continue
		}
		constants := spans(f)
		for _, declaration := range f.tree.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil || virtual(f, function) ||
				strings.HasPrefix(function.Name.Name, "Benchmark") {
				continue
			}
			found = append(found, f.comparedSpans(function)...)
			found = append(found, f.bareLimits(function, constants)...)
		}
	}
	return found
}

// virtual says whether a function runs on a bubble's clock: a test that opens one, or a helper in its file.
func virtual(f file, function *ast.FuncDecl) bool {
	if !slices.Contains(f.imports(), "testing/synctest") {
		return false
	}
	return !strings.HasPrefix(function.Name.Name, "Test") || mentions(function.Body, "synctest", "Test") ||
		mentions(function.Body, "synctest", "Wait")
}

func mentions(node ast.Node, from string, names ...string) bool {
	there := false
	ast.Inspect(node, func(n ast.Node) bool {
		there = there || selects(n, from, names...)
		return !there
	})
	return there
}

func selects(node ast.Node, from string, names ...string) bool {
	selector, ok := node.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := selector.X.(*ast.Ident)
	return ok && pkg.Name == from && slices.Contains(names, selector.Sel.Name)
}

// comparedSpans finds comparisons of time.Since or time.Until, also of a variable that holds one.
func (f file) comparedSpans(function *ast.FuncDecl) []string {
	held := map[string]bool{}
	isSpan := func(e ast.Expr) bool {
		there := mentions(e, "time", "Since", "Until")
		ast.Inspect(e, func(n ast.Node) bool {
			name, ok := n.(*ast.Ident)
			there = there || ok && held[name.Name]
			return !there
		})
		return there
	}
	var found []string
	ast.Inspect(function.Body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.AssignStmt:
			for i, value := range node.Rhs {
				name, ok := node.Lhs[min(i, len(node.Lhs)-1)].(*ast.Ident)
				if ok && isMeasured(value) {
					held[name.Name] = true
				}
			}
		case *ast.BinaryExpr:
			if slices.Contains([]token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ}, node.Op) &&
				(isSpan(node.X) || isSpan(node.Y)) && !f.excused(node) {
				found = append(found, f.at(node)+": the verdict depends on how long something took")
			}
		}
		return true
	})
	return found
}

// isMeasured says whether a value is a span of time itself, and not the result of a call that was handed one.
func isMeasured(value ast.Expr) bool {
	call, ok := value.(*ast.CallExpr)
	return ok && selects(call.Fun, "time", "Since", "Until")
}

// bareLimits finds limits of time that are written as a number, or are a constant that says nothing about itself.
func (f file) bareLimits(function *ast.FuncDecl, constants map[string]bool) []string {
	limit := map[string]int{"WithTimeout": 1, "WithTimeoutCause": 1, "After": 0, "NewTimer": 0}
	var found []string
	ast.Inspect(function.Body, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || !selects(call.Fun, "context", "WithTimeout", "WithTimeoutCause") &&
			!selects(call.Fun, "time", "After", "NewTimer") {
			return true
		}
		selector, _ := call.Fun.(*ast.SelectorExpr)
		if n := limit[selector.Sel.Name]; n < len(call.Args) && bare(call.Args[n], constants) && !f.excused(node) {
			found = append(found, f.at(node)+": a limit of time beside check.Deadline")
		}
		return true
	})
	return found
}

// bare says whether a span is a number of units, or a constant without a comment.
func bare(span ast.Expr, constants map[string]bool) bool {
	switch span := span.(type) {
	case *ast.BasicLit:
		return true
	case *ast.SelectorExpr:
		return selects(span, "time", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour")
	case *ast.Ident:
		commented, known := constants[span.Name]
		return known && !commented
	case *ast.BinaryExpr:
		return bare(span.X, constants) || bare(span.Y, constants)
	case *ast.ParenExpr:
		return bare(span.X, constants)
	}
	return false
}

// spans are the constants of a file, and whether a comment says what each is for.
func spans(f file) map[string]bool {
	constants := map[string]bool{}
	ast.Inspect(f.tree, func(node ast.Node) bool {
		declaration, ok := node.(*ast.GenDecl)
		if !ok || declaration.Tok != token.CONST {
			return true
		}
		for _, spec := range declaration.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			commented := value.Doc != nil || value.Comment != nil ||
				len(declaration.Specs) == 1 && declaration.Doc != nil || f.commented(declaration)
			for _, name := range value.Names {
				constants[name.Name] = commented
			}
		}
		return true
	})
	return constants
}

// commented says whether a declaration has a comment on or above its line: inside functions the parser attaches none.
func (f file) commented(node ast.Node) bool {
	line := f.positions.Position(node.Pos()).Line
	return slices.ContainsFunc(f.tree.Comments, func(group *ast.CommentGroup) bool {
		end := f.positions.Position(group.End()).Line
		return end == line || end == line-1
	})
}
