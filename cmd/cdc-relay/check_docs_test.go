package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestDocumentation_ListsEveryCheckAndNoOther(t *testing.T) {
	text, err := os.ReadFile("../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\|").FindAllSubmatch(text, -1) {
		for _, name := range regexp.MustCompile("`([a-z_.]+)`").FindAllSubmatch(row[1], -1) {
			documented[string(name[1])] = true
		}
	}
	checks := make(map[string]bool)
	for _, pattern := range []string{"../../postgres/preflight/*.go", "../../sink/topics/check*.go", "../../check/*.go"} {
		for _, check := range checksIn(t, pattern) {
			checks[check] = true
		}
	}
	for check := range checks {
		if !documented[check] {
			t.Errorf("docs/check.md does not have %s", check)
		}
	}
	for check := range documented {
		if !checks[check] {
			t.Errorf("docs/check.md has %s, which no check says", check)
		}
	}
	if len(checks) < 40 {
		t.Errorf("%d checks found: the test looks in the wrong place", len(checks))
	}
}

// checksIn are the names of checks in the files of a package: what is given to a
// parameter called check, or to a variable or field of that name.
func checksIn(t *testing.T, pattern string) (checks []string) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %d files (%v)", pattern, len(paths), err)
	}
	var files []*ast.File
	takes := make(map[string]bool) // functions whose first parameter is the check
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		for _, declared := range file.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok && len(f.Type.Params.List) > 0 && isCheck(f.Type.Params.List[0].Names...) {
				takes[f.Name.Name] = true
			}
		}
	}
	literal := func(expressions ...ast.Expr) {
		for _, e := range expressions {
			if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if name, err := strconv.Unquote(l.Value); err == nil {
					checks = append(checks, name)
				}
			}
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && takes[f.Sel.Name] && len(n.Args) > 0 {
					literal(n.Args[0])
				}
			case *ast.AssignStmt:
				if to, ok := n.Lhs[0].(*ast.Ident); ok && isCheck(to) {
					literal(n.Rhs[0])
				}
			case *ast.ValueSpec:
				if isCheck(n.Names...) {
					literal(n.Values...)
				}
			case *ast.CompositeLit:
				if list, ok := n.Type.(*ast.ArrayType); ok && ofChecks(list.Elt) {
					for _, one := range n.Elts {
						literal(one.(*ast.CompositeLit).Elts[0])
					}
				}
			case *ast.KeyValueExpr:
				if to, ok := n.Key.(*ast.Ident); ok && to.Name == "Check" {
					literal(n.Value)
				}
			}
			return true
		})
	}
	return checks
}

func isCheck(names ...*ast.Ident) bool { return len(names) > 0 && names[0].Name == "check" }

// ofChecks tells a struct that begins with a check.
func ofChecks(e ast.Expr) bool {
	s, ok := e.(*ast.StructType)
	return ok && len(s.Fields.List) > 0 && isCheck(s.Fields.List[0].Names...)
}
