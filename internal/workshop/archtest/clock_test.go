package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// measuring are the packages whose tests measure speed on purpose.
var measuring = []string{"internal/workshop/bench", "lock/bench", "lock/interop"}

// wallClocks finds verdicts of tests that depend on how busy the machine is: a span of real time that is compared, and
// a limit of real time that is written down as a number. A test waits for the event (package check), whose one deadline
// only says that it hung; what is about time runs in virtual time (testing/synctest). A context that is meant to run
// out has a name that says so: check.Soon, or a constant whose comment says why a slow machine does no harm.
func wallClocks(files []file) []string {
	var found []string
	for _, f := range goFiles(files) {
		if !f.test() || slices.Contains(measuring, f.dir()) {
			continue
		}
		constants := spans(f)
		for _, declaration := range f.tree.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil || virtual(f, function) || strings.HasPrefix(function.Name.Name, "Benchmark") {
				continue
			}
			found = append(found, f.comparedSpans(function)...)
			found = append(found, f.bareLimits(function, constants)...)
		}
	}
	return found
}

// virtual says whether a function runs on the clock of a bubble: a test that opens one, or a helper in a file of such
// tests.
func virtual(f file, function *ast.FuncDecl) bool {
	if !slices.Contains(f.imports(), "testing/synctest") {
		return false
	}
	return !strings.HasPrefix(function.Name.Name, "Test") || mentions(function.Body, "synctest", "Test") || mentions(function.Body, "synctest", "Wait")
}

func mentions(node ast.Node, from string, names ...string) bool {
	there := false
	ast.Inspect(node, func(n ast.Node) bool {
		there = there || selects(n, from, names...)
		return !there
	})
	return there
}

// selects says whether a node is from.name.
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
			if slices.Contains([]token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ}, node.Op) && (isSpan(node.X) || isSpan(node.Y)) && !f.excused(node) {
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
		if !ok || !selects(call.Fun, "context", "WithTimeout", "WithTimeoutCause") && !selects(call.Fun, "time", "After", "NewTimer") {
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
			commented := value.Doc != nil || value.Comment != nil || len(declaration.Specs) == 1 && declaration.Doc != nil || f.commented(declaration)
			for _, name := range value.Names {
				constants[name.Name] = commented
			}
		}
		return true
	})
	return constants
}

// commented says whether a comment stands on the line of a declaration or right above it. Inside a function the parser
// attaches none.
func (f file) commented(node ast.Node) bool {
	line := f.positions.Position(node.Pos()).Line
	return slices.ContainsFunc(f.tree.Comments, func(group *ast.CommentGroup) bool {
		end := f.positions.Position(group.End()).Line
		return end == line || end == line-1
	})
}
