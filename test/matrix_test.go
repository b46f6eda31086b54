package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// matrixLines is how many failures are listed. One may be added, and none be lost.
const matrixLines = 66

// withoutTest is how many of them may have a reason instead.
const withoutTest = 2

// Every failure has a test that exists, or explains why not; every kind of fault and
// every step that is named exists.
func TestMatrix_EveryFailureHasATest(t *testing.T) {
	tests, kinds := testNames(t), faultKinds(t)
	lines, bare := 0, 0
	for line := range strings.Lines(section(t, read(t, "docs/guarantees.md"), "Every failure")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || strings.Contains(line, "|---|") || strings.Contains(line, "| failure |") {
			continue
		}
		lines++
		name, proof := strings.TrimSpace(cells[0]), cells[3]
		if strings.HasPrefix(strings.TrimSpace(proof), "none: ") {
			bare++
			continue
		}
		quoted := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(proof, -1)
		if len(quoted) == 0 && !strings.Contains(proof, "the same tests") {
			t.Errorf("%s: no test", name)
		}
		for _, m := range quoted {
			if word := m[1]; strings.HasPrefix(word, "Test") && !tests[word] || !strings.HasPrefix(word, "Test") && !named(kinds, word) {
				t.Errorf("%s: %s does not exist", name, word)
			}
		}
	}
	if lines < matrixLines || bare > withoutTest {
		t.Errorf("%d failures, want %d; %d without a test, want at most %d", lines, matrixLines, bare, withoutTest)
	}
}

func named(names map[string]bool, word string) bool {
	prefix, all := strings.CutSuffix(word, "*")
	if !all {
		return names[word]
	}
	for name := range names {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// faultKinds are the kinds and steps of the fault programme, and the words that are
// neither.
func faultKinds(t *testing.T) map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", "-trimpath", "-ldflags", "-s -w", "./test/fault", "-list")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as `make build` does, whose packages serve here too
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{"failpoints": true}
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(line, " ")
		names[name] = true
	}
	steps := regexp.MustCompile(`(?:at|ahead)\("(\w+)"`).FindAllStringSubmatch(read(t, "test/fault/overlay.go"), -1)
	for _, m := range steps {
		names[m[1]] = true
	}
	if len(names) < 60 || len(steps) < 10 {
		t.Fatalf("found %d kinds and %d steps only", len(names), len(steps))
	}
	return names
}

// A panic leaves nothing half alive: it ends the process.
func TestRules_NoPanicIsSwallowed(t *testing.T) {
	allowed := map[string]bool{
		"config/document/document.go": true, // of the YAML library, which panics at some input
		"inbox/kafkainbox/round.go":   true, // of the service's handler and Config.Key: its transaction is rolled back, and its record counts as failed
	}
	shipped(t, func(path string, node ast.Node) {
		if call, ok := node.(*ast.CallExpr); ok {
			if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "recover" && !allowed[path] {
				t.Errorf("%s recovers from panics", path)
			}
		}
	})
}

// A wall clock may be set. A moment that was stored as a number of nanoseconds has
// lost the monotonic clock's reading, and must not be counted from.
func TestRules_IntervalsAreMonotonic(t *testing.T) {
	looked := 0
	shipped(t, func(path string, node ast.Node) {
		if folder := filepath.Dir(path); folder != "replication" && folder != "postgres/watch" && folder != "relay" && folder != "checkpoint" && !strings.HasPrefix(folder, "sink/") {
			return
		}
		call, ok := node.(*ast.CallExpr)
		if !ok || !callsOne(call, "Since", "Sub", "Until", "After", "Before") {
			return
		}
		looked++
		for _, arg := range call.Args {
			if inner, ok := arg.(*ast.CallExpr); ok && callsOne(inner, "Unix", "UnixMilli") {
				t.Errorf("%s counts time from a moment of the wall clock", path)
			}
		}
	})
	if looked < 20 {
		t.Errorf("found %d intervals only", looked)
	}
}

func callsOne(call *ast.CallExpr, names ...string) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	for _, name := range names {
		if selector.Sel.Name == name {
			return true
		}
	}
	return false
}

// shipped visits the syntax of everything that is linked into the binary.
func shipped(t *testing.T, visit func(path string, node ast.Node)) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && (inside == "test" || inside == "sandbox" || inside == "demo" || strings.HasPrefix(entry.Name(), ".") && inside != ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files++
		ast.Inspect(file, func(n ast.Node) bool {
			visit(filepath.ToSlash(inside), n)
			return true
		})
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("looked at %d files: %v", files, err)
	}
}
