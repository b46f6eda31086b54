package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the repository as seen from this package.
const root = ".."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documents are the pages that a user reads.
func documents(t *testing.T) []string {
	t.Helper()
	var pages []string
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			page, _ := filepath.Rel(root, path)
			pages = append(pages, filepath.ToSlash(page))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(pages, "README.md", "SECURITY.md", "CONTRIBUTING.md", "deploy/helm/cdc-relay/README.md")
}

// section is the text of a page from its heading to the next of the same level.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("no section %q", heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// entries are the sections below ### headings, by the words in backquotes there;
// a heading may have several.
func entries(text string) map[string]string {
	found := map[string]string{}
	for _, entry := range strings.Split("\n"+text, "\n### ")[1:] {
		heading, body, _ := strings.Cut(entry, "\n")
		for _, word := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(heading, -1) {
			found[word[1]] = body
		}
	}
	return found
}

func same(t *testing.T, what string, want, got map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[name]; !ok {
			t.Errorf("%s has no entry for %s (%s)", what, name, want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%s has an entry for %s, which the program never says", what, name)
		}
	}
}

func TestRunbook_HasEveryReasonAndNoOther(t *testing.T) {
	reasons := map[string]string{}
	inspectRoom(t, "fault", func(at string, n ast.Node) {
		for _, reason := range reasonsIn(n) {
			reasons[reason] = at
		}
	})
	if len(reasons) < 60 {
		t.Errorf("only %d reasons found: the test looks for the wrong thing", len(reasons))
	}
	runbook := entries(section(t, read(t, "docs/operations.md"), "Runbook"))
	same(t, "the runbook of docs/operations.md", reasons, runbook)
	for reason, text := range runbook {
		for _, part := range []string{"* **Means** ", "* **Look at** ", "* **Do** ", "* **Rows** "} {
			if !strings.Contains(text, part) {
				t.Errorf("the entry for %s has no %q", reason, part)
			}
		}
	}
}

// TestReasons_AreInOneList: every other package refers to the list. Commands, the demo and the
// tests only compare and show reasons; proof answers nobody but its caller.
func TestReasons_AreInOneList(t *testing.T) {
	rooms, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	referred := 0
	for _, room := range rooms {
		if !room.IsDir() || strings.HasPrefix(room.Name(), ".") || slices.Contains([]string{"fault", "proof", "outbox", "sandbox", "demo", "test"}, room.Name()) {
			continue
		}
		inspectRoom(t, room.Name(), func(at string, n ast.Node) {
			for _, reason := range reasonsIn(n) {
				t.Errorf("%s writes the reason %q: put it into fault/reasons.go, and its entry into the runbook", at, reason)
			}
			if selector, ok := n.(*ast.SelectorExpr); ok && name(selector.X) == "fault" && strings.HasPrefix(selector.Sel.Name, "Reason") {
				referred++
			}
		})
	}
	if referred < 200 {
		t.Errorf("only %d references found: the test looks for the wrong thing", referred)
	}
}

// inspectRoom visits the syntax of a folder and of those below it.
func inspectRoom(t *testing.T, room string, visit func(at string, n ast.Node)) {
	t.Helper()
	var files []string
	err := filepath.WalkDir(filepath.Join(root, room), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if n != nil {
				visit(room+"/"+filepath.Base(file)+":"+strconv.Itoa(set.Position(n.Pos()).Line), n)
			}
			return true
		})
	}
}

// reasonsIn finds the reasons that one piece of syntax writes down: a constant
// Reason… or reason…, a value {Class, "reason", …}, a field Reason, a state returned with its
// reason, and the calls that block with one.
func reasonsIn(n ast.Node) []string {
	switch n := n.(type) {
	case *ast.ValueSpec:
		if len(n.Names) == 1 && len(n.Values) == 1 && strings.HasPrefix(strings.ToLower(n.Names[0].Name), "reason") {
			return words(n.Values[0])
		}
	case *ast.CompositeLit:
		if len(n.Elts) >= 2 && slices.Contains([]string{"Retry", "Blocked", "Rejected"}, name(n.Elts[0])) {
			return words(n.Elts[1])
		}
	case *ast.KeyValueExpr:
		if key := name(n.Key); key == "Reason" || key == "reason" {
			return words(n.Value)
		}
	case *ast.CallExpr:
		if slices.Contains([]string{"stuck", "refused", "setBlocked"}, name(n.Fun)) && len(n.Args) > 0 {
			return words(n.Args[0])
		}
	case *ast.ReturnStmt:
		if len(n.Results) >= 2 && slices.Contains([]string{"Blocked", "Streaming", "Standby", "Reconnecting"}, name(n.Results[0])) {
			return words(n.Results[1])
		}
	}
	return nil
}

func name(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// words is the text of a literal in snake_case, or nothing.
func words(e ast.Expr) []string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return nil
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil || !regexp.MustCompile(`^[a-z][a-z_]*$`).MatchString(text) {
		return nil
	}
	return []string{text}
}

func TestRunbook_HasEveryAlertAndNoOther(t *testing.T) {
	alerts := map[string]string{}
	for _, rule := range alertRules(t) {
		alerts[rule.Alert] = "deploy/observability/alerts.yml"
		if want := "docs/operations.md#" + strings.ToLower(rule.Alert); !strings.HasSuffix(rule.Annotations["runbook_url"], want) {
			t.Errorf("alert %s: runbook_url %q does not lead to %s", rule.Alert, rule.Annotations["runbook_url"], want)
		}
	}
	same(t, "the section Alerts of docs/operations.md", alerts, entries(section(t, read(t, "docs/operations.md"), "Alerts")))
}

func TestStates_AreDocumented(t *testing.T) {
	var states []string
	inspectRoom(t, "relay", func(_ string, n ast.Node) {
		if spec, ok := n.(*ast.ValueSpec); ok && name(spec.Type) == "State" {
			states = append(states, words(spec.Values[0])...)
		}
	})
	if len(states) < 6 {
		t.Fatalf("found the states %q only", states)
	}
	table := section(t, read(t, "docs/operations.md"), "States")
	for _, state := range states {
		if !strings.Contains(table, "| `"+state+"` | ") {
			t.Errorf("docs/operations.md does not explain the state %s", state)
		}
	}
}

// testNames are those of all tests of the module.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	return declared(t, `(Test\w+)\(t \*testing\.T\)`, "")
}

// declared are the functions of test files that match, without those below a folder.
func declared(t *testing.T, function, without string) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root || without != "" && path == filepath.Join(root, without) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func `+function).FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// Each promise has two sentences behind its name, and a row of tests that exist.
func TestGuarantees_EachHasTwoSentencesAndTestsThatExist(t *testing.T) {
	tests, page := testNames(t), read(t, "docs/guarantees.md")
	promises := regexp.MustCompile(`(?m)^(\d+)\. \*\*(.+?)\*\* (.+)$`).FindAllStringSubmatch(section(t, page, "Guaranteed"), -1)
	if len(promises) < 10 {
		t.Fatalf("found %d numbered promises only", len(promises))
	}
	for i, promise := range promises {
		if promise[1] != strconv.Itoa(i+1) {
			t.Errorf("promise %q has the number %s, want %d", promise[2], promise[1], i+1)
		}
		if n := len(regexp.MustCompile(`[.](?: |$)`).FindAllString(promise[3], -1)); n != 2 {
			t.Errorf("promise %s has %d sentences, want 2: %s", promise[1], n, promise[3])
		}
	}
	table := section(t, page, "The tests behind each promise")
	for _, promise := range promises {
		if !strings.Contains(table, "\n| "+promise[1]+". "+promise[2]+" | `Test") {
			t.Errorf("no tests behind promise %s, %s", promise[1], promise[2])
		}
	}
	for _, cited := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(page, -1) {
		if !tests[cited[1]] {
			t.Errorf("docs/guarantees.md names %s, which does not exist", cited[1])
		}
	}
}

// The page says of each parser what feeds it, and of a row's tricks what tries them.
func TestSecurity_NamesTheTestsAndFuzzTargetsThatThereAre(t *testing.T) {
	page := read(t, "docs/security.md")
	tests := testNames(t)
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(page, -1) {
		if !tests[m[1]] {
			t.Errorf("it names %s, which does not exist", m[1])
		}
	}
	targets := declared(t, `(Fuzz\w+)\(f \*testing\.F\)`, "test") // those below are the tests' own
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Fuzz\\w+)`").FindAllStringSubmatch(page, -1) {
		named[m[1]] = true
	}
	if len(targets) < 20 || !maps.Equal(named, targets) {
		t.Errorf("it names %q; there are %q", slices.Sorted(maps.Keys(named)), slices.Sorted(maps.Keys(targets)))
	}
}

// anchor is what a Markdown renderer makes of a heading.
func anchor(heading string) string {
	heading = strings.ToLower(strings.NewReplacer("`", "", "*", "").Replace(heading))
	heading = regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(heading, "")
	return strings.ReplaceAll(heading, " ", "-")
}

func TestDocumentation_LinksLeadSomewhere(t *testing.T) {
	links := 0
	for _, page := range append(documents(t), "ARCHITECTURE.md", "CHANGELOG.md", "test/README.md") {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, fragment, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), path))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			if fragment == "" {
				continue
			}
			found := false
			for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(read(t, target), -1) {
				found = found || anchor(heading[1]) == fragment
			}
			if !found {
				t.Errorf("%s links to %s, but %s has no such heading", page, m[1], target)
			}
		}
	}
	if links < 20 {
		t.Errorf("found %d links only", links)
	}
}

func TestDocumentation_MakeTargetsExist(t *testing.T) {
	makefile, found := read(t, "Makefile"), 0
	for _, page := range append(documents(t), "ARCHITECTURE.md", "test/README.md") {
		for _, m := range regexp.MustCompile("(?m)(?:^|`|\\$ )make ([a-z-]+)").FindAllStringSubmatch(read(t, page), -1) {
			found++
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s shows make %s, which does not exist", page, m[1])
			}
		}
	}
	if found < 8 {
		t.Errorf("found %d targets only", found)
	}
}

// TestDocs_CountTheShapesThatNeedNoMapping holds the number in the README against the table of shapes.
func TestDocs_CountTheShapesThatNeedNoMapping(t *testing.T) {
	count := 0
	for line := range strings.Lines(read(t, "docs/tables.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.Contains(cells[2], "●") {
			continue
		}
		by, topic := strings.TrimSpace(cells[3]), strings.TrimSpace(cells[4])
		if !strings.HasPrefix(by, "ours") && !strings.HasPrefix(by, "any table") && !strings.HasPrefix(topic, "none") {
			count++
		}
	}
	if want := strconv.Itoa(count) + " table shapes of frameworks"; !strings.Contains(read(t, "README.md"), want) {
		t.Errorf("README.md does not have %q, which docs/tables.md has", want)
	}
}

// A module with such a path cannot be installed by its tag: `go install` refuses the whole.
func TestFiles_HaveNamesThatAModuleMayHave(t *testing.T) {
	var files []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains([]string{".git", ".bin", "dist"}, entry.Name()) {
			return filepath.SkipDir
		}
		files = append(files, strings.TrimPrefix(filepath.ToSlash(path), root))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	reserved := regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)
	for _, file := range files {
		for part := range strings.SplitSeq(file, "/") {
			if reserved.MatchString(part) || strings.HasSuffix(part, ".") || strings.ContainsAny(part, "\"'*<>?`|:;") {
				t.Errorf("%s: no module of Go may have this name", file)
			}
		}
	}
	if len(files) < 100 {
		t.Errorf("there are only %d files", len(files))
	}
}

// TestArchitecture_NamesFilesThatExist resolves the files and folders that the map and the folders'
// READMEs name: from the root, or in a folder that the same paragraph or row names, or in the
// README's own folder.
func TestArchitecture_NamesFilesThatExist(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "*", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	nested, err := filepath.Glob(filepath.Join(root, "*", "*", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z][a-zA-Z0-9_./-]*(?:\\.go|/))`")
	found := 0
	for _, page := range append(append(pages, nested...), filepath.Join(root, "ARCHITECTURE.md")) {
		page, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		page = filepath.ToSlash(page)
		if strings.HasPrefix(page, "docs/") {
			continue // pages for users
		}
		for _, line := range regexp.MustCompile(`\n\n|\n\||\n\d+\. |\n\* `).Split(read(t, page), -1) {
			folders := []string{"", filepath.Dir(page)}
			for _, m := range regexp.MustCompile("`([a-z][a-zA-Z0-9_./-]*)`").FindAllStringSubmatch(line, -1) {
				for _, base := range folders[:min(len(folders), 4)] { // root, own, and what the first name is in these
					folder := filepath.Join(base, m[1])
					if strings.HasSuffix(folder, ".go") {
						folder = filepath.Dir(folder)
					}
					folders = append(folders, folder)
				}
			}
			for _, m := range named.FindAllStringSubmatch(line, -1) {
				found++
				if !slices.ContainsFunc(folders, func(folder string) bool {
					_, err := os.Stat(filepath.Join(root, folder, m[1]))
					return err == nil
				}) {
					t.Errorf("%s names %s, which is in no folder that the same paragraph names", page, m[1])
				}
			}
		}
	}
	if found < 150 {
		t.Errorf("found %d names only", found)
	}
}
