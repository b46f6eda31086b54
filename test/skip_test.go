package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// starters are the calls that start a PostgreSQL, a real Kafka or Debezium.
var starters = map[string]bool{
	"sandbox.StartPostgres": true, "sandbox.StartApache": true, "sandbox.StartApacheContainer": true, "sandbox.StartCluster": true,
	"sandbox.StartDebezium": true, "sandbox.StartRegistry": true, "stage.Start": true,
}

// testFiles visits the files of tests and of what tests share.
func testFiles(t *testing.T, visit func(folder, path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		folder := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), root+string(filepath.Separator)))
		shared := strings.HasPrefix(folder, "test/harness") || strings.HasSuffix(folder, "test")
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || !shared && !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			visit(folder, path, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A test that CI leaves out is a test that nobody runs. What this machine cannot do is a
// failure there, by the harness; only -short leaves out more.
func TestSkips_AreTheHarnessesOrOfShortMode(t *testing.T) {
	found := 0
	testFiles(t, func(folder, path string, file *ast.File) {
		// The nested module cannot import the harness, and fails by itself where CI requires servers.
		if path == filepath.Join(root, "test", "harness", "main.go") || path == filepath.Join(root, "outbox", "python_test.go") {
			return
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if branch, ok := node.(*ast.IfStmt); ok && asksForShort(branch.Cond) {
				found++
				return false
			}
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if called, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, called.Sel.Name) {
				t.Errorf("%s skips a test: use harness.NotHere, Missing or Forbidden, which fail in CI, or ask for testing.Short", path)
			}
			return true
		})
	})
	if found == 0 {
		t.Error("no test asks for testing.Short")
	}
}

// asksForShort reports whether a condition is testing.Short(), alone or with others.
func asksForShort(condition ast.Expr) bool {
	switch c := condition.(type) {
	case *ast.BinaryExpr:
		return c.Op == token.LAND && (asksForShort(c.X) || asksForShort(c.Y))
	case *ast.CallExpr:
		called, ok := c.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		from, ok := called.X.(*ast.Ident)
		return ok && from.Name == "testing" && called.Sel.Name == "Short"
	}
	return false
}

// `make quick` starts no server.
func TestShort_LeavesOutWhatStartsAServer(t *testing.T) {
	functions := map[string]map[string][]string{} // the calls of each function of a folder's tests
	testFiles(t, func(folder, _ string, file *ast.File) {
		if functions[folder] == nil {
			functions[folder] = map[string][]string{}
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok {
				functions[folder][f.Name.Name] = append(functions[folder][f.Name.Name], calls(f)...)
			}
		}
	})
	found := 0
	for folder, all := range functions {
		needs := func(called string) bool { return called == "harness.NeedsServer" || called == "NeedsServer" }
		for name := range all {
			if !reaches(all, name, func(called string) bool { return starters[called] }, map[string]bool{}) {
				continue
			}
			found++
			test := strings.HasPrefix(name, "Test") && name != "TestMain" || strings.HasPrefix(folder, "test/harness") && ast.IsExported(name)
			if test && !reaches(all, name, needs, map[string]bool{}) {
				t.Errorf("%s: %s starts a server and does not call harness.NeedsServer", folder, name)
			}
		}
	}
	if found < len(starters) {
		t.Errorf("only %d functions start servers", found)
	}
}

// reaches reports whether a function or one that it calls in its package makes a call.
func reaches(functions map[string][]string, name string, call func(string) bool, seen map[string]bool) bool {
	if seen[name] {
		return false
	}
	seen[name] = true
	return slices.ContainsFunc(functions[name], func(called string) bool {
		return call(called) || reaches(functions, called, call, seen)
	})
}
