package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// needsRoot are the calls by which a test says that it is root's: harness.Link,
// harness.Forbidden, and what looks at the account itself.
var needsRoot = map[string]bool{"harness.Link": true, "harness.Forbidden": true, "sandbox.NewLink": true, "os.Getuid": true, "os.Geteuid": true}

// The other run is as an ordinary account, where these tests are left out. One that
// `make test-root` did not name would run nowhere.
func TestRootTests_AreAllNamed(t *testing.T) {
	packages, tests := rootTests(t)
	makefile := strings.ReplaceAll(read(t, "Makefile"), "\\\n", " ")
	for variable, want := range map[string][]string{"ROOT_PACKAGES": packages, "ROOT_TESTS": tests} {
		match := regexp.MustCompile(`(?m)^` + variable + ` := (.*)$`).FindStringSubmatch(makefile)
		if match == nil {
			t.Fatalf("the Makefile has no %s", variable)
		}
		got := strings.Fields(match[1])
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s in the Makefile:\n%s\nwhat needs root by the source:\n%s", variable, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// rootTests finds the tests that need root, and their packages, sorted.
func rootTests(t *testing.T) (packages, tests []string) {
	t.Helper()
	folders := map[string]map[string][]string{} // the calls of each function of a folder's tests
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if folders[folder] == nil {
			folders[folder] = map[string][]string{}
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok {
				folders[folder][f.Name.Name] = append(folders[folder][f.Name.Name], calls(f)...)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, functions := range folders {
		for name := range functions {
			if strings.HasPrefix(name, "Test") && name != "TestMain" && reaches(functions, name, func(called string) bool { return needsRoot[called] }, map[string]bool{}) {
				packages, tests = append(packages, "./"+filepath.ToSlash(folder)), append(tests, name)
			}
		}
	}
	slices.Sort(packages)
	slices.Sort(tests)
	return slices.Compact(packages), tests
}

// calls are the names that a function calls, with their package if they have one.
func calls(f *ast.FuncDecl) (names []string) {
	ast.Inspect(f, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch called := call.Fun.(type) {
		case *ast.Ident:
			names = append(names, called.Name)
		case *ast.SelectorExpr:
			if from, ok := called.X.(*ast.Ident); ok {
				names = append(names, from.Name+"."+called.Sel.Name)
			}
		}
		return true
	})
	return names
}
