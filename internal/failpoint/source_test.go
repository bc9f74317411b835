package failpoint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// event is something on the road that stands in the source: a boundary, or a call
// that changes something outside the process.
type event struct {
	step string // name of the constant; empty: a call
	call string // name of the method
	at   token.Position
}

// source is what the tests read of the service: functions by "file function".
type source struct {
	root      string
	files     []string
	positions *token.FileSet
	functions map[string][]*ast.FuncDecl // methods of several types may share a name
	methods   map[string]bool            // of the interfaces that the service declares
}

// read parses every file that ends up in the program.
func read(t *testing.T) *source {
	t.Helper()
	s := &source{
		root: check.Value(filepath.Abs("../.."))(t), positions: token.NewFileSet(),
		functions: map[string][]*ast.FuncDecl{}, methods: map[string]bool{},
	}
	check.Must(t, fs.WalkDir(os.DirFS(s.root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasPrefix(path, "internal/failpoint/") {
			return err
		}
		s.files = append(s.files, path)
		return s.parse(path)
	}))
	return s
}

// text is what stands in a file.
func (s *source) text(t *testing.T, path string) string {
	t.Helper()
	return string(check.Value(os.ReadFile(filepath.Join(s.root, path)))(t))
}

func (s *source) parse(path string) error {
	tree, err := parser.ParseFile(s.positions, filepath.Join(s.root, path), nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(tree, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			name := path + " " + node.Name.Name
			s.functions[name] = append(s.functions[name], node)
		case *ast.InterfaceType:
			if strings.HasPrefix(path, "service/") {
				for _, method := range node.Methods.List {
					for _, name := range method.Names {
						s.methods[name.Name] = true
					}
				}
			}
		}
		return true
	})
	return nil
}

// events lists what stands in the functions of a name, in the order of the source.
func (s *source) events(name string) []event {
	var events []event
	for _, function := range s.functions[name] {
		ast.Inspect(function, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			at := s.positions.Position(call.Pos())
			if step, ok := reached(call); ok {
				events = append(events, event{step: step, at: at})
			} else if name, ok := outward(call); ok {
				events = append(events, event{call: name, at: at})
			}
			for _, handed := range call.Args { // a method that is handed on to be called
				if method, ok := handed.(*ast.SelectorExpr); ok && changing[method.Sel.Name] == ofAnInterface {
					events = append(events, event{call: method.Sel.Name, at: at})
				}
			}
			return true
		})
	}
	return events
}

// reached is the step of a call failpoint.Reach(failpoint.Step).
func reached(call *ast.CallExpr) (step string, ok bool) {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || function.Sel.Name != "Reach" || len(call.Args) != 1 {
		return "", false
	}
	constant, ok := call.Args[0].(*ast.SelectorExpr)
	if !ok {
		return "a step that is no constant", true
	}
	return constant.Sel.Name, true
}

// outward is the name of a call that changes something outside.
func outward(call *ast.CallExpr) (name string, ok bool) {
	switch function := call.Fun.(type) {
	case *ast.Ident: // a function of the same package
		return function.Name, changing[function.Name] == ofTheRoad
	case *ast.SelectorExpr:
		switch name := function.Sel.Name; changing[name] {
		case ofTheRoad:
			return name, true
		case ofAnInterface:
			// What the service asks of others takes a context and something to do;
			// ctx.Done() and Close(ctx) are something else.
			first, isName := argument(call, 0).(*ast.Ident)
			return name, isName && strings.HasSuffix(strings.ToLower(first.Name), "ctx") && len(call.Args) > 1
		}
	}
	return "", false
}

func argument(call *ast.CallExpr, n int) ast.Expr {
	if n >= len(call.Args) {
		return nil
	}
	return call.Args[n]
}

// constants are the names of the steps, with their values.
func constants(t *testing.T) map[string]string {
	t.Helper()
	tree := check.Value(parser.ParseFile(token.NewFileSet(), "failpoint.go", nil, parser.SkipObjectResolution))(t)
	steps := map[string]string{}
	ast.Inspect(tree, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Step" {
			steps[spec.Names[0].Name] = strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)
		}
		return true
	})
	return steps
}
